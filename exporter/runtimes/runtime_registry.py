"""The table of runtimes: the built-in ones and those of plugins."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import cast

from exporter.core.import_object import RUNTIME_GROUP, PluginError, find_plugins, load_plugin
from exporter.manifest import Device
from exporter.runtimes.custom_kernels import NO_KERNELS, Kernels
from exporter.runtimes.driver_session import DriverSession
from exporter.runtimes.drivers.driver_table import DRIVERS
from exporter.runtimes.protocol import RuntimeUnavailable, Session

OpenSession = Callable[[Path, Device, Kernels], Session]


def import_driver(name: str) -> None:
    """Import the driver of a built-in runtime, if it is installed."""
    if name in DRIVERS:
        with suppress(Exception):  # a session reports it
            import_module(DRIVERS[name])


def open_session(path: Path, device: Device, kernels: Kernels = NO_KERNELS) -> Session:
    """Load the file on the device.

    Args:
        path: The `.onnx` file.
        device: The runtime and its execution provider.
        kernels: Kernels of the file's custom operators.

    Raises:
        RuntimeUnavailable: if this machine does not have the runtime or the device.
        LoadFailure: if the runtime does not load the file.
        RuntimeProcessEnd: if the process of the device's environment ended.
    """
    return _find_runtime(device.runtime)(path, device, kernels)


def _find_runtime(name: str) -> OpenSession:
    if name in DRIVERS:
        return DriverSession
    entry_point = find_plugins(RUNTIME_GROUP).get(name)
    if entry_point is None:
        raise RuntimeUnavailable(
            f"runtime '{name}': no installed plugin provides it; install one, or use one of "
            f"{', '.join(DRIVERS)}"
        )
    try:
        opener = load_plugin(entry_point)
    except PluginError as error:
        raise RuntimeUnavailable(str(error)) from error
    if not callable(opener):
        raise RuntimeUnavailable(f"runtime '{name}': {entry_point.value} is not a function")
    return cast(OpenSession, opener)
