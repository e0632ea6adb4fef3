"""The driver of ONNX Runtime 1.16 and later, on the CPU or on the device's execution provider.

If a provider does not start, ONNX Runtime continues on the CPU, and such a result proves nothing.
So this module raises an exception then.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from importlib import import_module
from typing import Any, Sequence

import numpy as np
import onnxruntime

from exporter.runtimes.drivers.driver import (
    Bits,
    Driver,
    DriverFailure,
    FileRequest,
    Placement,
    Value,
    describe,
)

_CPU = "CPUExecutionProvider"
_ERRORS_ONLY = 3
_BFLOAT16 = 16
#: The values of `TensorProto.DataType`.
_ONNX_DTYPES = {
    "bfloat16": _BFLOAT16,
    "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 20,
}
#: Plugins of GPUs and NPUs, which software can emulate.
_ACCELERATORS = ("WebGpuExecutionProvider", "QNNExecutionProvider")
#: The libraries of this process, by the names of their providers.
_REGISTERED: dict[str, str] = {}
_RECORDS_PLACEMENT = "session.record_ep_graph_assignment_info"
#: A model that every provider accepts, serialized because no parser may be installed:
#: <ir_version: 7, opset_import: ["" : 13]> g (float[1] x) => (float[1] y) {y = Relu(x)}
PROBE = (
    b'\x08\x07:5\n\x0e\n\x01x\x12\x01y"\x04Relu:\x00\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01'
    b"\x12\x04\n\x02\x08\x01b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\r"
)


class OnnxRuntimeDriver(Driver):
    """A file loaded by ONNX Runtime."""

    def __init__(self, request: FileRequest) -> None:
        """Load the file, or raise the failure of the provider or of the load."""
        providers = list(request.providers) or [_CPU]
        self._requested = providers[0]
        if request.provider_library:
            _register_provider(request.provider_library, providers[0])
        else:
            available = onnxruntime.get_available_providers()
            if providers[0] not in available:
                problem = f"this ONNX Runtime has no {providers[0]}; it has "
                problem += f"{', '.join(sorted(available))}; for a measurement of another machine: "
                raise DriverFailure("missing", f"{problem}`exporter merge --help`")
        options = _build_options(request)
        _register_libraries(request.libraries, options)
        try:
            self._session = _create_session(request.path, request, providers, options)
        except DriverFailure:
            raise
        except Exception as error:  # pybind11 classes without a common base
            if providers[0] != _CPU and not _can_start(request, providers):
                problem = f"{providers[0]} does not start on this machine"
                raise DriverFailure("unavailable", problem, describe(error)) from error
            raise DriverFailure("load", "", describe(error)) from error
        active = self._session.get_providers()
        if active[:1] != providers[:1]:
            problem = f"{providers[0]} does not start on this machine: "
            problem += f"ONNX Runtime uses {', '.join(active)} instead"
            raise DriverFailure("unavailable", problem)
        _require_passable_dtypes(self._session)
        self.output_names = tuple(output.name for output in self._session.get_outputs())

    def find_placement(self) -> Placement | None:
        """Return the provider of each node, in subgraphs too, before any node is fused."""
        nodes: dict[str, Counter[str]] = {}
        operators: list[str] = []
        others: list[str] = []
        is_cpu_only = self._session.get_providers() == [_CPU]
        try:
            parts = self._session.get_provider_graph_assignment_info()
        except AttributeError:  # an older ONNX Runtime does not record it
            if not is_cpu_only:
                return None
            counts: dict[str, dict[str, int]] = {_CPU: {}}
            return Placement(self._requested, counts)
        for part in parts:
            assigned = part.get_nodes()
            nodes.setdefault(part.ep_name, Counter()).update(node.op_type for node in assigned)
            operators += [f"{node.domain}::{node.op_type}" for node in assigned]
            others += [
                getattr(node, "name", "")
                for node in assigned
                if part.ep_name == _CPU != self._requested
            ]
        if is_cpu_only:
            nodes.setdefault(_CPU, Counter())  # a graph without nodes runs there as well
        counts = {name: dict(counter) for name, counter in nodes.items()}
        is_software = _is_emulated(self._requested)
        return Placement(
            self._requested, counts, "", operators, is_software=is_software, others=others
        )

    def run(self, inputs: dict[str, Value]) -> Sequence[Value]:
        values = (*self._session.get_inputs(), *self._session.get_outputs())
        try:
            has_bits = any(isinstance(value, Bits) for value in inputs.values())
            if not has_bits and not any("bfloat16" in value.type for value in values):
                outputs: Sequence[Value] = self._session.run(None, dict(inputs))
                return outputs
            # `run` accepts no bfloat16, because numpy has none. An `OrtValue` has an ONNX type.
            typed = {name: _to_ort_value(value) for name, value in inputs.items()}
            results = self._session.run_with_ort_values(None, typed)
            return [_to_value(result) for result in results]
        except Exception as error:  # pybind11 classes without a common base
            raise DriverFailure("run", "", describe(error)) from error


def _is_emulated(provider: str) -> bool:
    """Return True for a plugin of GPUs or NPUs that has only a CPU."""
    if provider not in _ACCELERATORS:
        return False
    devices = [each.device for each in onnxruntime.get_ep_devices() if each.ep_name == provider]
    return all(device.type == onnxruntime.OrtHardwareDeviceType.CPU for device in devices)


def _require_passable_dtypes(session: Any) -> None:
    """Raise DriverFailure if the Python API of this release cannot pass an input's dtype."""
    if hasattr(onnxruntime.OrtValue, "ortvalue_from_numpy_with_onnx_type"):
        return
    for value in session.get_inputs():
        if "bfloat16" in value.type:
            version = onnxruntime.__version__
            problem = f"the Python API of ONNX Runtime {version} cannot pass bfloat16, the dtype "
            problem += f"of the input {value.name}; use 1.20 or later"
            raise DriverFailure("unavailable", problem)


def _register_provider(library: str, name: str) -> None:
    """Load the shared library of a provider, once in this process."""
    if not hasattr(onnxruntime, "register_execution_provider_library"):
        version = onnxruntime.__version__
        problem = f"ONNX Runtime {version} has no plugin providers; use 1.23 or later"
        raise DriverFailure("unavailable", problem)
    if _REGISTERED.get(name) == library:
        return
    if any(device.ep_name == name for device in onnxruntime.get_ep_devices()):
        problem = f"this process has a provider {name} from another library; give each library an "
        raise DriverFailure("unavailable", f"{problem}environment of its own")
    requested = library
    try:
        module, _, function = library.rpartition(":")
        if module.isidentifier() or module.replace(".", "_").isidentifier():
            library = str(getattr(import_module(module), function)())
        onnxruntime.register_execution_provider_library(name, library)
        _REGISTERED[name] = requested
    except Exception as error:  # pybind11 classes without a common base
        problem = f"the library of {name} cannot be loaded"
        raise DriverFailure("unavailable", problem, describe(error)) from error


def _build_options(request: FileRequest) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    options.add_session_config_entry(_RECORDS_PLACEMENT, "1")
    for name, value in (request.session_options or {}).items():
        if "." in name:
            text = str(int(value)) if isinstance(value, bool) else str(value)
            options.add_session_config_entry(name, text)
            continue
        try:
            if not hasattr(options, name):
                raise AttributeError("it does not exist")
            is_level = name == "graph_optimization_level"
            levels = onnxruntime.GraphOptimizationLevel
            setattr(options, name, getattr(levels, str(value)) if is_level else value)
        except Exception as error:  # pybind11 raises several classes
            version = onnxruntime.__version__
            problem = f"ONNX Runtime {version} rejects the session option {name}"
            raise DriverFailure("unavailable", problem, describe(error)) from error
    return options


def _register_libraries(libraries: Sequence[str], options: Any) -> None:
    for library in libraries:
        try:
            options.register_custom_ops_library(library)
        except Exception as error:  # pybind11 classes without a common base
            name = library.replace("\\", "/").rpartition("/")[2]
            problem = f"the kernels of {name} cannot be registered"
            raise DriverFailure("load", problem, describe(error)) from error


def _create_session(model: Any, request: FileRequest, providers: list[str], options: Any) -> Any:
    tables = request.provider_options or {}
    chosen = [tables.get(name, {}) for name in providers]
    if request.provider_library:
        devices = [each for each in onnxruntime.get_ep_devices() if each.ep_name == providers[0]]
        if not devices:
            problem = f"the library of {providers[0]} finds no device of it on this machine"
            others = {each.ep_name for each in onnxruntime.get_ep_devices()} - {_CPU}
            problem += f"; it has {', '.join(sorted(others))}" if others else ""
            raise DriverFailure("unavailable", problem)
        options.add_provider_for_devices(devices, chosen[0])
        return onnxruntime.InferenceSession(model, options, enable_fallback=0)
    # With fallback, the CPU replaces a provider that fails, with only a line on stdout.
    return onnxruntime.InferenceSession(
        model, options, providers=providers, provider_options=chosen, enable_fallback=0
    )


def _can_start(request: FileRequest, providers: list[str]) -> bool:
    """Return True if the provider loads a simple model; the file is at fault then."""
    try:
        session = _create_session(PROBE, request, providers, _build_options(request))
    except Exception:  # noqa: BLE001 - ONNX Runtime's exceptions have no other common base
        return False
    return bool(session.get_providers()[:1] == providers[:1])


def _to_ort_value(value: Value) -> Any:
    if isinstance(value, Bits):
        bits = np.ascontiguousarray(value.values)
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            bits, _ONNX_DTYPES[value.dtype]
        )
    return onnxruntime.OrtValue.ortvalue_from_numpy(value)


def _to_value(value: Any) -> Value:
    if value.is_tensor_sequence():
        return [np.asarray(item) for item in value.numpy()]
    if value.element_type() != _BFLOAT16:
        return value.numpy()
    size = int(np.prod(value.shape(), dtype=np.int64))
    data = ctypes.string_at(value.data_ptr(), 2 * size)
    return Bits("bfloat16", np.frombuffer(data, dtype=np.uint16).reshape(value.shape()))


open_file = OnnxRuntimeDriver
