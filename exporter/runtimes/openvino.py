"""The runtime OpenVINO, on the CPU or on the device's own choice.

Input: the path of a file and a `Device`. Output: a `Session` that computes in float32, also on a
processor with bfloat16 units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from exporter.manifest import Device
from exporter.runtimes.custom_kernels import Kernels
from exporter.runtimes.error_messages import format_error
from exporter.runtimes.protocol import (
    LoadFailure,
    Placement,
    RunFailure,
    RuntimeUnavailable,
    Session,
)
from exporter.runtimes.values import Array

_CPU = "CPU"
_BFLOAT16 = tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)
#: By default, processors with bfloat16 units compute float32 graphs in it, with an error of 1e-2
#: that the file does not have. One thread, because several workers run at once.
_SETTINGS = {
    "INFERENCE_PRECISION_HINT": "f32",
    "EXECUTION_MODE_HINT": "ACCURACY",
    "INFERENCE_NUM_THREADS": 1,
}
#: Devices that select or combine others: `HETERO:GPU,CPU`.
_VIRTUAL = ("AUTO", "HETERO", "MULTI", "BATCH")
#: Nodes of the compiled graph that compute nothing.
_IDLE_NODES = ("Input", "Output", "Const")
#: First lines of an exception, which name only a source file of OpenVINO.
_IDLE_LINES = ("Exception from ", "Check '", "Summary:", "FrontEnd API failed", "Model wasn't")


def open_file(path: Path, device: Device, _kernels: Kernels) -> Session:
    """Load the file; see `runtime_registry.open_session`."""
    return OpenVinoSession(path, device)


@cache
def _load_core() -> openvino.Core:
    """Return the only core; after its plugin is unloaded, the next signal crashes the process."""
    return openvino.Core()


class OpenVinoSession:
    """A file compiled by OpenVINO; see `Session`."""

    def __init__(self, path: Path, device: Device) -> None:
        """Read and compile the file; external data is read from its folder.

        Raises:
            RuntimeUnavailable: if this machine does not have the device.
            LoadFailure: if OpenVINO does not load the file.
        """
        self._path, self._requested = path, device.device or _CPU
        core = _load_core()
        _require_device(core, self._requested)
        settings = dict(_SETTINGS)
        if self._requested != _CPU:  # other devices have no number of threads
            del settings["INFERENCE_NUM_THREADS"]
        try:
            model = core.read_model(path)
            for port in (*model.inputs, *model.outputs):
                if port.get_element_type() == openvino.Type.string:
                    raise LoadFailure(
                        f"{_find_name(port)} contains strings, which are not passed to OpenVINO: "
                        "its Python binding frees them twice and crashes"
                    )
            self._compiled = core.compile_model(model, self._requested, settings)
        except LoadFailure:
            raise
        except Exception as error:  # usually a RuntimeError with a report of many lines
            raise LoadFailure(_format_openvino_error(error, path)) from error
        inputs = self._compiled.inputs
        self._types = {_find_name(port): port.get_element_type() for port in inputs}

    @property
    def output_names(self) -> Sequence[str]:
        """Names of the outputs, in the order of the file."""
        return tuple(_find_name(port) for port in self._compiled.outputs)

    @property
    def placement(self) -> Placement | None:
        """All nodes on the reported device; None if OpenVINO uses several devices."""
        devices = list(self._compiled.get_property("EXECUTION_DEVICES"))
        if len(devices) != 1:
            return None
        active = str(devices[0]).strip("()")
        requested = self._requested
        # `GPU` is the first of its kind, `GPU.0`. With `AUTO` and similar, OpenVINO selects.
        if active.split(".")[0] == requested or requested.split(":")[0] in _VIRTUAL:
            active = requested
        kinds = (_find_kind(node) for node in self._compiled.get_runtime_model().get_ops())
        nodes = Counter(kind for kind in kinds if kind not in _IDLE_NODES)
        return Placement(requested=requested, nodes={active: nodes})

    def run(self, inputs: Mapping[str, Array]) -> Sequence[Array]:
        """Return the outputs in the order of the file.

        Raises:
            RunFailure: if an input is missing, unknown or of another dtype, or OpenVINO fails.
        """
        # OpenVINO runs without an input as if it were empty, and casts one of another dtype.
        for name in self._types:
            if name not in inputs:
                raise RunFailure(f"no input {name}")
        for name, array in inputs.items():
            if name not in self._types:
                raise RunFailure(f"the file has no input {name}")
            is_bfloat16 = array.dtype == _BFLOAT16
            actual = openvino.Type.bf16 if is_bfloat16 else openvino.Type(array.dtype)
            if actual != self._types[name]:
                expected = self._types[name].to_string()
                raise RunFailure(f"input {name} is {array.dtype}, the file expects {expected}")
        try:
            request = self._compiled.create_infer_request()
            request.infer({name: _to_tensor(array) for name, array in inputs.items()})
            ports = range(len(self._compiled.outputs))
            return [_to_array(request.get_output_tensor(index)) for index in ports]
        except Exception as error:
            raise RunFailure(_format_openvino_error(error, self._path)) from error


def _require_device(core: openvino.Core, device: str) -> None:
    """Raise RuntimeUnavailable if a device in the text does not exist."""
    kind, _, choice = device.partition(":")
    names = [item.strip("- ") for item in choice.split(",") if item] if kind in _VIRTUAL else [kind]
    available = list(core.available_devices)
    kinds = {item.split(".")[0] for item in available}
    for name in names:
        if name.split("(")[0] not in {*available, *kinds}:
            listed = ", ".join(sorted(available)) or "none"
            raise RuntimeUnavailable(f"OpenVINO finds no {name} on this machine; it has {listed}")


def _find_name(port: Any) -> str:
    """Return the name in the file: a value may have several names in OpenVINO."""
    names: set[str] = port.get_names()
    friendly = str(port.get_node().get_friendly_name()).removesuffix("/sink_port_0")
    return friendly if friendly in names else min(names, default="")


def _find_kind(node: Any) -> str:
    """Return the kind of a node in the compiled graph."""
    info = node.get_rt_info()
    return str(info["layerType"].astype(str)) if "layerType" in info else str(node.get_type_name())


def _to_tensor(array: Array) -> openvino.Tensor:
    if array.dtype == _BFLOAT16:  # not a numpy dtype, so OpenVINO reads it as float16
        bits = np.ascontiguousarray(array).view(np.uint16)
        return openvino.Tensor(bits, openvino.Shape(list(array.shape)), openvino.Type.bf16)
    return openvino.Tensor(np.ascontiguousarray(array).reshape(array.shape))


def _to_array(tensor: openvino.Tensor) -> Array:
    """Return a copy, because the memory belongs to OpenVINO."""
    if tensor.element_type == openvino.Type.bf16:
        return np.array(tensor.data).view(np.uint16).view(_BFLOAT16)
    return np.array(tensor.data)


def _format_openvino_error(error: BaseException, path: Path) -> str:
    """Return the first line that names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    useful = [line for line in lines if not line.startswith(_IDLE_LINES)]
    return format_error(RuntimeError((useful or lines or [""])[0].removeprefix("-- ")), path)
