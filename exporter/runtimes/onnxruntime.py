"""The runtime ONNX Runtime, on the CPU or on the device's execution provider.

Input: the path of a file and a `Device`. Output: a `Session` on the first provider. If a provider
does not start, ONNX Runtime continues on the CPU, and such a result proves nothing. So this module
raises an exception then.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, parser
from onnx.helper import tensor_dtype_to_np_dtype

from exporter.manifest import Device
from exporter.runtimes.custom_kernels import Kernels
from exporter.runtimes.error_messages import format_error
from exporter.runtimes.missing_kernels import describe_missing_kernel
from exporter.runtimes.protocol import (
    LoadFailure,
    Placement,
    RunFailure,
    RuntimeUnavailable,
    Session,
)
from exporter.runtimes.values import Array, OnnxValue

_CPU = "CPUExecutionProvider"
_ERRORS_ONLY = 3
#: Options that keep the precision of the file: by default, CUDA's kernels round float32 to the 10
#: bits of TF32 on every GPU that supports it, an error of 1e-3.
_PRECISION = {"CUDAExecutionProvider": {"use_tf32": "0"}}
_RECORDS_PLACEMENT = "session.record_ep_graph_assignment_info"
_BFLOAT16 = tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)
#: A model that every provider accepts.
_PROBE = '<ir_version: 7, opset_import: ["" : 13]> g (float[1] x) => (float[1] y) {y = Relu(x)}'


def open_file(path: Path, device: Device, kernels: Kernels) -> Session:
    """Load the file; see `runtime_registry.open_session`."""
    return OnnxRuntimeSession(path, device, libraries=kernels.libraries)


class OnnxRuntimeSession:
    """A file loaded by ONNX Runtime; see `Session`."""

    def __init__(
        self,
        path: Path,
        device: Device,
        *,
        threads: int = 1,
        optimized: bool = True,
        libraries: Sequence[Path] = (),
    ) -> None:
        """Load the file.

        Args:
            path: The `.onnx` file; external data is read from its folder.
            device: Its providers, first choice first; without any, the CPU.
            threads: For one operator. One, because several workers run at once.
            optimized: If False, ONNX Runtime runs the graph as it is written.
            libraries: Kernels of custom operators.

        Raises:
            RuntimeUnavailable: if the first provider is missing or does not start.
            LoadFailure: if ONNX Runtime does not load the file.
        """
        providers = list(device.providers) or [_CPU]
        available = onnxruntime.get_available_providers()
        if providers[0] not in available:
            listed = ", ".join(sorted(available))
            raise RuntimeUnavailable(f"this ONNX Runtime has no {providers[0]}; it has {listed}")
        self._path = path
        self._requested, self._strict = providers[0], device.strict
        try:
            options = _build_options(threads, optimized=optimized)
            _register_libraries(libraries, options)
            self._session = _create_session(str(path), providers, options)
        except LoadFailure:
            raise
        except Exception as error:  # pybind11 classes without a common base
            if providers[0] != _CPU and not _can_start(providers):
                message = f"{providers[0]} does not start on this machine"
                raise RuntimeUnavailable(f"{message}: {format_error(error, path)}") from error
            description = describe_missing_kernel(str(error), path, providers[0])
            raise LoadFailure(description or format_error(error, path)) from error
        if libraries and (names := _find_replaced_functions(self._session, path)):
            raise LoadFailure(
                f"a registered kernel replaces {', '.join(names)}, a function of the file: the "
                "function itself would not be tested"
            )
        active = self._session.get_providers()
        if active[:1] != providers[:1]:
            raise RuntimeUnavailable(
                f"{providers[0]} does not start on this machine: "
                f"ONNX Runtime uses {', '.join(active)} instead"
            )

    @property
    def output_names(self) -> Sequence[str]:
        """Names of the outputs, in the order of the file."""
        return tuple(output.name for output in self._session.get_outputs())

    @property
    def placement(self) -> Placement | None:
        """The provider of each node, in subgraphs too, before any node is fused."""
        nodes: dict[str, Counter[str]] = {}
        is_cpu_only = self._session.get_providers() == [_CPU]
        try:
            parts = self._session.get_provider_graph_assignment_info()
        except AttributeError:  # an older ONNX Runtime does not record it
            if not is_cpu_only:
                return None
            parts = []
        for part in parts:
            operators = Counter(node.op_type for node in part.get_nodes())
            nodes.setdefault(part.ep_name, Counter()).update(operators)
        if is_cpu_only:
            nodes.setdefault(_CPU, Counter())  # a graph without nodes runs there as well
        return Placement(requested=self._requested, nodes=nodes, strict=self._strict)

    def run(self, inputs: Mapping[str, Array]) -> Sequence[OnnxValue]:
        """Return the outputs in the order of the file.

        Raises:
            RunFailure: if ONNX Runtime fails on these inputs.
        """
        values = (*self._session.get_inputs(), *self._session.get_outputs())
        try:
            if not any("bfloat16" in value.type for value in values):
                outputs: Sequence[OnnxValue] = self._session.run(None, dict(inputs))
                return outputs
            # `run` accepts no bfloat16, because numpy has none. An `OrtValue` has an ONNX type.
            typed = {name: _to_ort_value(array) for name, array in inputs.items()}
            return [_to_array(value) for value in self._session.run_with_ort_values(None, typed)]
        except Exception as error:
            raise RunFailure(format_error(error, self._path)) from error


def _build_options(threads: int, *, optimized: bool = True) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    options.add_session_config_entry(_RECORDS_PLACEMENT, "1")
    return options


def _register_libraries(libraries: Sequence[Path], options: onnxruntime.SessionOptions) -> None:
    for library in libraries:
        try:
            options.register_custom_ops_library(str(library))
        except Exception as error:  # pybind11 classes without a common base
            reason = format_error(error, library)
            message = f"the kernels of {library.name} cannot be registered: {reason}"
            raise LoadFailure(message) from error


def _find_replaced_functions(session: onnxruntime.InferenceSession, path: Path) -> list[str]:
    """Return functions of the file that registered kernels replace."""
    model = onnx.load(str(path), load_external_data=False)
    functions = {f"{item.domain}::{item.name}" for item in model.functions}
    if not functions:
        return []
    try:
        parts = session.get_provider_graph_assignment_info()
    except AttributeError:  # an older ONNX Runtime does not record it: any may be replaced
        return sorted(functions)
    # A function that is not replaced is inlined before nodes are assigned.
    operators = {f"{node.domain}::{node.op_type}" for part in parts for node in part.get_nodes()}
    return sorted(functions & operators)


def _create_session(
    model: str | bytes, providers: list[str], options: onnxruntime.SessionOptions
) -> onnxruntime.InferenceSession:
    # With fallback, the CPU replaces a provider that fails, with only a line on stdout.
    return onnxruntime.InferenceSession(
        model,
        options,
        providers=providers,
        provider_options=[_PRECISION.get(name, {}) for name in providers],
        enable_fallback=0,
    )


def _can_start(providers: list[str]) -> bool:
    """Return True if the provider loads a simple model; the file is at fault then."""
    model = parser.parse_model(_PROBE).SerializeToString()
    try:
        session = _create_session(model, providers, _build_options(1))
    except Exception:  # noqa: BLE001 - ONNX Runtime's exceptions have no other common base
        return False
    return bool(session.get_providers()[:1] == providers[:1])


def _to_ort_value(array: Array) -> onnxruntime.OrtValue:
    if array.dtype == _BFLOAT16:
        bits = np.ascontiguousarray(array).view(np.uint16)
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, TensorProto.BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _to_array(value: onnxruntime.OrtValue) -> OnnxValue:
    if value.is_tensor_sequence():
        return [np.asarray(item) for item in value.numpy()]
    if value.element_type() != TensorProto.BFLOAT16:
        array: Array = value.numpy()
        return array
    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(data, dtype=_BFLOAT16).reshape(value.shape())
