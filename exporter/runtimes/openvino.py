"""OpenVINO: on the CPU, or on the device that is asked for.

In: the path of a file and a `Device`. Out: a `Session` that computes in float32, whatever the
machine's processor would rather do.
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
from exporter.runtimes.error_messages import format_error
from exporter.runtimes.protocol import (
    LoadFailure,
    Placement,
    RunFailure,
    RuntimeUnavailable,
)
from exporter.runtimes.values import Array

_CPU = "CPU"
_BFLOAT16 = tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)
#: Processors with bfloat16 units compute float32 graphs in it unless told otherwise, which is an
#: error of 1e-2 that no file has. One thread, since several workers run at once.
_SETTINGS = {
    "INFERENCE_PRECISION_HINT": "f32",
    "EXECUTION_MODE_HINT": "ACCURACY",
    "INFERENCE_NUM_THREADS": 1,
}
#: Devices that are a choice among others, or a mixture of them: `HETERO:GPU,CPU`.
_VIRTUAL = ("AUTO", "HETERO", "MULTI", "BATCH")
#: Nodes of the compiled graph that compute nothing.
_ENDS = ("Input", "Output", "Const")


def version() -> str:
    """The version of OpenVINO."""
    return str(openvino.__version__)


@cache
def _core() -> openvino.Core:
    """One for the process, never let go: where its plugin is unloaded, the next signal crashes."""
    return openvino.Core()


class OpenVinoSession:
    """A file compiled by OpenVINO; see `Session`."""

    def __init__(self, path: Path, device: Device) -> None:
        """Reads and compiles the file; external data is read from its folder.

        Raises:
            Unavailable: where this machine lacks the device.
            LoadFailure: where OpenVINO refuses the file.
        """
        self._path, self._asked = path, device.device or _CPU
        core = _core()
        _require(core, self._asked)
        settings = dict(_SETTINGS)
        if self._asked != _CPU:  # the number of threads is the CPU's alone
            del settings["INFERENCE_NUM_THREADS"]
        try:
            model = core.read_model(path)
            self._refuse_strings(model)
            self._compiled = core.compile_model(model, self._asked, settings)
        except LoadFailure:
            raise
        except Exception as error:  # RuntimeError mostly, with a report of many lines
            raise LoadFailure(_telling_line(error, path)) from error
        self._types = {_name(port): port.get_element_type() for port in self._compiled.inputs}

    @property
    def output_names(self) -> Sequence[str]:
        """Names of the outputs, in the order of the file."""
        return tuple(_name(port) for port in self._compiled.outputs)

    @property
    def placement(self) -> Placement | None:
        """All of it where OpenVINO says that it executes; None where that are several devices."""
        devices = list(self._compiled.get_property("EXECUTION_DEVICES"))
        if len(devices) != 1:
            return None
        at_work = str(devices[0]).strip("()")
        asked = self._asked
        # `GPU` is the first of its kind, `GPU.0`; `AUTO` and its kin leave the choice to OpenVINO.
        if at_work.split(".")[0] == asked or asked.split(":")[0] in _VIRTUAL:
            at_work = asked
        kinds = (_layer(node) for node in self._compiled.get_runtime_model().get_ops())
        nodes = Counter(kind for kind in kinds if kind not in _ENDS)
        return Placement(requested=asked, nodes={at_work: nodes})

    def run(self, inputs: Mapping[str, Array]) -> Sequence[Array]:
        """Outputs in the order of the file.

        Raises:
            RunFailure: where an input is missing, unknown or of another dtype, or OpenVINO fails.
        """
        self._require_inputs(inputs)
        try:
            request = self._compiled.create_infer_request()
            request.infer({name: _to_tensor(array) for name, array in inputs.items()})
            ports = range(len(self._compiled.outputs))
            return [_to_array(request.get_output_tensor(index)) for index in ports]
        except Exception as error:
            raise RunFailure(_telling_line(error, self._path)) from error

    def _require_inputs(self, inputs: Mapping[str, Array]) -> None:
        """OpenVINO runs without an input as if it were empty, and casts one of another dtype."""
        for name in self._types:
            if name not in inputs:
                raise RunFailure(f"no input {name}")
        for name, array in inputs.items():
            if name not in self._types:
                raise RunFailure(f"the file has no input {name}")
            if _element_type(array) != self._types[name]:
                wanted = self._types[name].to_string()
                raise RunFailure(f"input {name} is {array.dtype}, the file takes {wanted}")

    @staticmethod
    def _refuse_strings(model: openvino.Model) -> None:
        """OpenVINO's Python binding frees strings twice: the process would die of it."""
        for port in (*model.inputs, *model.outputs):
            if port.get_element_type() == openvino.Type.string:
                message = f"{_name(port)} holds strings, which OpenVINO is not given here"
                raise LoadFailure(f"{message}: its Python binding crashes on them")


def _require(core: openvino.Core, device: str) -> None:
    """Every device that the text names has to be there."""
    kind, _, choice = device.partition(":")
    named = [item.strip("- ") for item in choice.split(",") if item] if kind in _VIRTUAL else [kind]
    available = list(core.available_devices)
    kinds = {item.split(".")[0] for item in available}
    for name in named:
        if name.split("(")[0] not in {*available, *kinds}:
            has = ", ".join(sorted(available)) or "none"
            raise RuntimeUnavailable(f"OpenVINO finds no {name} on this machine; it has {has}")


def _name(port: Any) -> str:
    """The name in the file: OpenVINO may know a value by several."""
    names: set[str] = port.get_names()
    friendly = str(port.get_node().get_friendly_name()).removesuffix("/sink_port_0")
    return friendly if friendly in names else min(names, default="")


def _layer(node: Any) -> str:
    """The kind of a node in the compiled graph."""
    info = node.get_rt_info()
    return str(info["layerType"].astype(str)) if "layerType" in info else str(node.get_type_name())


def _element_type(array: Array) -> openvino.Type:
    return openvino.Type.bf16 if array.dtype == _BFLOAT16 else openvino.Type(array.dtype)


def _to_tensor(array: Array) -> openvino.Tensor:
    if array.dtype == _BFLOAT16:  # numpy has none, so that OpenVINO takes it for float16
        bits = np.ascontiguousarray(array).view(np.uint16)
        return openvino.Tensor(bits, openvino.Shape(list(array.shape)), openvino.Type.bf16)
    return openvino.Tensor(np.ascontiguousarray(array).reshape(array.shape))


def _to_array(tensor: openvino.Tensor) -> Array:
    """A copy: the memory is OpenVINO's own."""
    if tensor.element_type == openvino.Type.bf16:
        return np.array(tensor.data).view(np.uint16).view(_BFLOAT16)
    return np.array(tensor.data)


def _telling_line(error: BaseException, path: Path) -> str:
    """OpenVINO's first lines say in which of its source files it was noticed."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    idle = ("Exception from ", "Check '", "Summary:", "FrontEnd API failed", "Model wasn't")
    telling = [line for line in lines if not line.startswith(idle)]
    return format_error(RuntimeError((telling or lines or [""])[0].removeprefix("-- ")), path)
