"""ONNX Runtime: on the CPU, or on the execution provider that the device asks for.

In: the path of a file and a `Device`. Out: a `Session` on that provider and no other: ONNX Runtime
goes on with the CPU when a provider does not start, and a result from there proves nothing.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from exporter.manifest import Device
from exporter.runtimes.error_messages import format_error
from exporter.runtimes.missing_kernels import describe_missing_kernel
from exporter.runtimes.protocol import (
    LoadFailure,
    Placement,
    RunFailure,
    RuntimeUnavailable,
)
from exporter.runtimes.values import Array, OnnxValue

_CPU = "CPUExecutionProvider"
_ERRORS_ONLY = 3
#: What a provider is told so that it computes in the precision of the file: by default CUDA's
#: kernels round float32 to the 10 bits of TF32 on every GPU that has it, an error of 1e-3.
_PRECISION = {"CUDAExecutionProvider": {"use_tf32": "0"}}
_RECORDS_PLACEMENT = "session.record_ep_graph_assignment_info"
_BFLOAT16 = tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)


def version() -> str:
    """The version of ONNX Runtime."""
    return str(onnxruntime.__version__)


class OnnxRuntimeSession:
    """A file loaded by ONNX Runtime; see `Session`."""

    def __init__(
        self,
        path: Path,
        device: Device,
        *,
        threads: int = 1,
        optimised: bool = True,
        libraries: Sequence[Path] = (),
    ) -> None:
        """Loads the file.

        Args:
            path: The `.onnx` file; external data is read from its folder.
            device: Its providers, first choice first; none means the CPU.
            threads: For one operator. One, since several workers run at once.
            optimised: Without it, ONNX Runtime runs the graph as it is written.
            libraries: Kernels of custom operators.

        Raises:
            Unavailable: where the first provider is missing, or does not start.
            LoadFailure: where ONNX Runtime refuses the file.
        """
        providers = list(device.providers) or [_CPU]
        _require(providers[0])
        self._path = path
        self._asked, self._strict = providers[0], device.strict
        try:
            options = _options(threads, optimized=optimised)
            _register(libraries, options)
            self._session = _open(str(path), providers, options)
        except LoadFailure:
            raise
        except Exception as error:  # pybind11 classes with no base of their own
            if providers[0] != _CPU and not _starts(providers):
                message = f"{providers[0]} does not start on this machine"
                raise RuntimeUnavailable(f"{message}: {format_error(error, path)}") from error
            lacks = describe_missing_kernel(str(error), path, providers[0])
            raise LoadFailure(lacks or format_error(error, path)) from error
        if libraries and (replaced := _replaced(self._session, path)):
            raise LoadFailure(
                f"a kernel stands in for {', '.join(replaced)}, which the file brings along as a "
                "function: nothing would be known of the file's own"
            )
        at_work = self._session.get_providers()
        if at_work[:1] != providers[:1]:
            raise RuntimeUnavailable(
                f"{providers[0]} does not start on this machine: "
                f"ONNX Runtime went on with {', '.join(at_work)}"
            )

    @property
    def output_names(self) -> Sequence[str]:
        """Names of the outputs, in the order of the file."""
        return tuple(output.name for output in self._session.get_outputs())

    @property
    def placement(self) -> Placement | None:
        """Where its nodes run, those of subgraphs too, as assigned before any is fused."""
        nodes: dict[str, Counter[str]] = {}
        try:
            parts = self._session.get_provider_graph_assignment_info()
        except AttributeError:  # an ONNX Runtime that does not record it
            if self._session.get_providers() != [_CPU]:
                return None
            parts = []  # there is nothing else for them to run on
        for part in parts:
            found = Counter(node.op_type for node in part.get_nodes())
            nodes.setdefault(part.ep_name, Counter()).update(found)
        if self._session.get_providers() == [_CPU]:
            nodes.setdefault(_CPU, Counter())  # a graph without nodes runs there as well
        return Placement(requested=self._asked, nodes=nodes, strict=self._strict)

    def run(self, inputs: Mapping[str, Array]) -> Sequence[OnnxValue]:
        """Outputs in the order of the file.

        Raises:
            RunFailure: where ONNX Runtime fails on these inputs.
        """
        try:
            if self._has_bfloat16():
                return self._run_by_values(inputs)
            outputs: Sequence[OnnxValue] = self._session.run(None, dict(inputs))
        except Exception as error:
            raise RunFailure(format_error(error, self._path)) from error
        return outputs

    def _has_bfloat16(self) -> bool:
        ends = (*self._session.get_inputs(), *self._session.get_outputs())
        return any("bfloat16" in end.type for end in ends)

    def _run_by_values(self, inputs: Mapping[str, Array]) -> Sequence[OnnxValue]:
        """`run` knows no bfloat16, since numpy has none; values with a type of ONNX's do."""
        values = {name: _to_value(array) for name, array in inputs.items()}
        return [_to_array(value) for value in self._session.run_with_ort_values(None, values)]


def _require(provider: str) -> None:
    available = onnxruntime.get_available_providers()
    if provider not in available:
        raise RuntimeUnavailable(
            f"this ONNX Runtime has no {provider}; it has {', '.join(sorted(available))}"
        )


def _options(threads: int, *, optimised: bool = True) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    options.add_session_config_entry(_RECORDS_PLACEMENT, "1")
    return options


def _register(libraries: Sequence[Path], options: onnxruntime.SessionOptions) -> None:
    for library in libraries:
        try:
            options.register_custom_ops_library(str(library))
        except Exception as error:  # pybind11 classes with no base of their own
            reason = format_error(error, library)
            message = f"the kernels of {library.name} cannot be registered: {reason}"
            raise LoadFailure(message) from error


def _replaced(session: onnxruntime.InferenceSession, path: Path) -> list[str]:
    """Functions of the file that registered kernels run: ONNX Runtime prefers those."""
    model = onnx.load(str(path), load_external_data=False)
    functions = {f"{item.domain}::{item.name}" for item in model.functions}
    if not functions:
        return []
    try:
        parts = session.get_provider_graph_assignment_info()
    except AttributeError:  # an ONNX Runtime that does not tell: each may be
        return sorted(functions)
    # A function that is one is taken apart before nodes are assigned.
    ran = {f"{node.domain}::{node.op_type}" for part in parts for node in part.get_nodes()}
    return sorted(functions & ran)


def _open(
    model: str | bytes, providers: list[str], options: onnxruntime.SessionOptions
) -> onnxruntime.InferenceSession:
    # Without this, a provider that fails is replaced by the CPU, with a line on stdout.
    return onnxruntime.InferenceSession(
        model,
        options,
        providers=providers,
        provider_options=[_PRECISION.get(name, {}) for name in providers],
        enable_fallback=0,
    )


def _starts(providers: list[str]) -> bool:
    """Whether the provider takes a model that every provider takes: else it is not the file."""
    from onnx import parser

    text = '<ir_version: 7, opset_import: ["" : 13]> g (float[1] x) => (float[1] y) {y = Relu(x)}'
    try:
        session = _open(parser.parse_model(text).SerializeToString(), providers, _options(1))
    except Exception:  # noqa: BLE001 - ONNX Runtime's exceptions share no base but this
        return False
    return bool(session.get_providers()[:1] == providers[:1])


def _to_value(array: Array) -> onnxruntime.OrtValue:
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
