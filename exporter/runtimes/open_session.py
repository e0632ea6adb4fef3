"""The choice of the runtime for a device.

In: the path of a file and a `Device`. Out: a `Session`. A runtime is imported when a device asks
for it, so that one that is not installed costs only its own cells.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_never

from exporter.manifest import Device
from exporter.runtimes.custom_kernels import NO_KERNELS, Kernels
from exporter.runtimes.protocol import Session, RuntimeUnavailable


def open_session(path: Path, device: Device, kernels: Kernels = NO_KERNELS) -> Session:
    """Loads the file on the device.

    Args:
        path: The `.onnx` file.
        device: The runtime, and where it runs.
        kernels: Of the file's custom operators.

    Raises:
        Unavailable: where this machine lacks the runtime or the device.
        LoadFailure: where the runtime refuses the file.
    """
    match device.runtime:
        case "onnxruntime":
            try:
                from exporter.runtimes.onnxruntime import OnnxRuntimeSession
            except ImportError as error:
                raise RuntimeUnavailable(f"onnxruntime cannot be imported: {error}") from error
            return OnnxRuntimeSession(path, device, libraries=kernels.libraries)
        case "reference":
            from exporter.runtimes.onnx_reference import ReferenceSession

            return ReferenceSession(path, kernels.operators)
        case "openvino":
            try:
                from exporter.runtimes.openvino import OpenVinoSession
            except ImportError as error:
                raise RuntimeUnavailable(f"openvino cannot be imported: {error}") from error
            return OpenVinoSession(path, device)
        case "backend":
            from exporter.runtimes.onnx_backend import BackendSession

            return BackendSession(path, device)
        case _:
            assert_never(device.runtime)
