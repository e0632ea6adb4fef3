"""The driver of OpenVINO, on the CPU or on the device's own choice."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any, Sequence

import numpy as np
import openvino

from exporter.runtimes.drivers.driver import (
    Array,
    Bits,
    Driver,
    DriverFailure,
    FileRequest,
    Placement,
    Value,
    require_inputs,
)

_CPU = "CPU"
#: Devices that select or combine others: `HETERO:GPU,CPU`.
_VIRTUAL = ("AUTO", "HETERO", "MULTI", "BATCH")
#: Nodes of the compiled graph that compute nothing.
_IDLE_NODES = ("Input", "Output", "Const")
#: First lines of an exception, which name only a source file of OpenVINO.
_IDLE_LINES = ("Exception from ", "Check '", "Summary:", "While validating", "Model wasn't")


@lru_cache(maxsize=1)
def _load_core() -> Any:
    """Return the only core; after its plugin is unloaded, the next signal crashes the process."""
    return openvino.Core()


class OpenVinoDriver(Driver):
    """A file compiled by OpenVINO."""

    def __init__(self, request: FileRequest) -> None:
        """Read and compile the file; external data is read from its folder."""
        self._requested = request.device or _CPU
        core = _load_core()
        _require_device(core, self._requested)
        try:
            model = core.read_model(request.path)
            for port in (*model.inputs, *model.outputs):
                if port.get_element_type() == openvino.Type.string:
                    problem = f"{_find_name(port)} contains strings, which are not passed to "
                    problem += "OpenVINO: its Python binding frees them twice and crashes"
                    raise DriverFailure("load", problem)
            settings = request.session_options or {}
            self._compiled = core.compile_model(model, self._requested, settings)
        except DriverFailure:
            raise
        except Exception as error:  # usually a RuntimeError with many lines
            raise DriverFailure("load", "", _select_reason(error)) from error
        inputs = self._compiled.inputs
        self._types = {_find_name(port): port.get_element_type() for port in inputs}
        self.output_names = tuple(_find_name(port) for port in self._compiled.outputs)

    def find_placement(self) -> Placement | None:
        """Return all nodes on the reported device; None if OpenVINO uses several devices."""
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
        return Placement(requested, {active: dict(nodes)})

    def run(self, inputs: dict[str, Value]) -> Sequence[Value]:
        # OpenVINO runs without an input as if it were empty, and casts one of another dtype.
        require_inputs(list(self._types), inputs)
        for name, value in inputs.items():
            is_bits = isinstance(value, Bits)
            actual = openvino.Type.bf16 if is_bits else openvino.Type(value.dtype)
            if actual != self._types[name]:
                expected = self._types[name].to_string()
                problem = f"input {name} is {value.dtype}, the file expects {expected}"
                raise DriverFailure("run", problem)
        try:
            request = self._compiled.create_infer_request()
            request.infer({name: _to_tensor(value) for name, value in inputs.items()})
            ports = range(len(self._compiled.outputs))
            return [_to_value(request.get_output_tensor(index)) for index in ports]
        except Exception as error:  # usually a RuntimeError
            raise DriverFailure("run", "", _select_reason(error)) from error


def _require_device(core: Any, device: str) -> None:
    """Raise DriverFailure if a device in the text does not exist."""
    kind, _, choice = device.partition(":")
    names = [item.strip("- ") for item in choice.split(",") if item] if kind in _VIRTUAL else [kind]
    available = list(core.available_devices)
    kinds = {item.split(".")[0] for item in available}
    for name in names:
        if name.split("(")[0] not in {*available, *kinds}:
            listed = ", ".join(sorted(available)) or "none"
            problem = f"OpenVINO finds no {name} on this machine; it has {listed}"
            raise DriverFailure("unavailable", problem)


def _find_name(port: Any) -> str:
    """Return the name in the file: a value may have several names in OpenVINO."""
    names = port.get_names()
    suffix = "/sink_port_0"
    friendly = str(port.get_node().get_friendly_name())
    friendly = friendly[: -len(suffix)] if friendly.endswith(suffix) else friendly
    return friendly if friendly in names else min(names, default="")


def _find_kind(node: Any) -> str:
    info = node.get_rt_info()
    return str(info["layerType"].astype(str)) if "layerType" in info else str(node.get_type_name())


def _to_tensor(value: Value) -> Any:
    if isinstance(value, Bits):  # not a numpy dtype, so OpenVINO reads it as float16
        bits = np.ascontiguousarray(value.values)
        return openvino.Tensor(bits, openvino.Shape(list(bits.shape)), openvino.Type.bf16)
    return openvino.Tensor(np.ascontiguousarray(value).reshape(value.shape))


def _to_value(tensor: Any) -> Value:
    """Return a copy, because the memory belongs to OpenVINO."""
    data: Array = np.array(tensor.data)
    if tensor.element_type == openvino.Type.bf16:
        return Bits("bfloat16", data.view(np.uint16))
    return data


def _select_reason(error: BaseException) -> str:
    """Return the first line that names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    useful = [line for line in lines if not line.startswith(_IDLE_LINES) and line[-1] != ":"]
    reason = (useful or lines or [type(error).__name__])[0]
    return reason[3:] if reason.startswith("-- ") else reason


open_file = OpenVinoDriver
