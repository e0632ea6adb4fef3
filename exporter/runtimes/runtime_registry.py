"""The table of runtimes: the built-in ones and those of plugins.

Input: the path of a file and a `Device`. Output: a `Session`. A runtime is imported when a device
needs it, so a missing runtime affects only its own cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import cast

from exporter.core.entry_points import RUNTIME_GROUP, PluginError, find_plugins, load_plugin
from exporter.manifest import Device
from exporter.runtimes.custom_kernels import NO_KERNELS, Kernels
from exporter.runtimes.protocol import RuntimeUnavailable, Session

OpenSession = Callable[[Path, Device, Kernels], Session]
#: Value of `runtime` -> the module with the function `open_file`.
BUILT_IN_RUNTIMES: Mapping[str, str] = {
    "onnxruntime": "exporter.runtimes.onnxruntime",
    "reference": "exporter.runtimes.onnx_reference",
    "openvino": "exporter.runtimes.openvino",
    "backend": "exporter.runtimes.onnx_backend",
}


def open_session(path: Path, device: Device, kernels: Kernels = NO_KERNELS) -> Session:
    """Load the file on the device.

    Args:
        path: The `.onnx` file.
        device: The runtime and its execution provider.
        kernels: Kernels of the file's custom operators.

    Raises:
        RuntimeUnavailable: if this machine does not have the runtime or the device.
        LoadFailure: if the runtime does not load the file.
    """
    return _find_runtime(device.runtime)(path, device, kernels)


def _find_runtime(name: str) -> OpenSession:
    if module := BUILT_IN_RUNTIMES.get(name):
        try:
            return cast(OpenSession, import_module(module).open_file)
        except ImportError as error:
            raise RuntimeUnavailable(f"{name} cannot be imported: {error}") from error
    entry_point = find_plugins(RUNTIME_GROUP).get(name)
    if entry_point is None:
        raise RuntimeUnavailable(
            f"runtime '{name}': no installed plugin provides it; install one, or use one of "
            f"{', '.join(BUILT_IN_RUNTIMES)}"
        )
    try:
        opener = load_plugin(entry_point)
    except PluginError as error:
        raise RuntimeUnavailable(str(error)) from error
    if not callable(opener):
        raise RuntimeUnavailable(f"runtime '{name}': {entry_point.value} is not a function")
    return cast(OpenSession, opener)
