"""The export of one call at some opsets, and the comparison of the files with PyTorch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

from benchmarks.operators.opinfo import FunctionSample
from benchmarks.operators.results import CallOutcome, CallResult
from exporter.core.text import join_lines, redact
from exporter.worker.torch_private.graph_operators import Decompositions
from exporter.worker.torch_private.internals import tree_leaves, tree_structure, tree_unflatten

_MESSAGE_LENGTH = 300
#: Loose, because a wrong translation is wrong by more than rounding.
_RTOL, _ATOL = 1e-3, 1e-4
_MISSING_KERNEL = ("NOT_IMPLEMENTED", "Could not find an implementation", "Failed to find kernel")

#: Returns the file at an opset.
Exporter = Callable[[int], onnx.ModelProto]


class CallModule(nn.Module):
    """A model of one call: its tensors are inputs, all other arguments are constants."""

    def __init__(self, function: Callable[..., Any], sample: FunctionSample) -> None:
        super().__init__()
        arguments = (sample.args, sample.kwargs)
        self._function = function
        self._structure = tree_structure(arguments)
        self._leaves = [
            None if isinstance(leaf, Tensor) else leaf for leaf in tree_leaves(arguments)
        ]
        self._positions = [
            index for index, leaf in enumerate(tree_leaves(arguments)) if isinstance(leaf, Tensor)
        ]

    def forward(self, *tensors: Tensor) -> Any:
        """Call the function, and return the tensors of its result."""
        leaves = list(self._leaves)
        for position, tensor in zip(self._positions, tensors, strict=True):
            leaves[position] = tensor
        arguments, keywords = tree_unflatten(leaves, self._structure)
        return _list_tensors(self._function(*arguments, **keywords))


def export_call(
    exporter: str, function: Callable[..., Any], sample: FunctionSample, opsets: Sequence[int]
) -> dict[int, CallOutcome]:
    """Return the outcome at each opset.

    Args:
        exporter: `torchscript` or `dynamo`.
        function: The called function.
        sample: The arguments.
        opsets: The opsets of the files.
    """
    module = CallModule(function, sample).eval()
    tensors = _list_tensors((sample.args, sample.kwargs))
    expected = _list_tensors(module(*_copy(tensors)))
    try:
        write = _EXPORTERS[exporter](module, tensors)
    except Exception as error:
        return dict.fromkeys(opsets, _refuse(error))
    # The highest opset has most translations, so lower ones can reuse its decomposition.
    with Decompositions().reuse():
        descending = sorted(opsets, reverse=True)
        return {opset: _prove(write, opset, tensors, expected) for opset in descending}


def _trace(module: nn.Module, tensors: tuple[Tensor, ...]) -> Exporter:
    def write(opset: int) -> onnx.ModelProto:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/call.onnx"
            torch.onnx.export(module, _copy(tensors), path, opset_version=opset, dynamo=False)
            return onnx.load(path)

    return write


def _capture(module: nn.Module, tensors: tuple[Tensor, ...]) -> Exporter:
    program = torch.export.export(module, _copy(tensors))

    def write(opset: int) -> onnx.ModelProto:
        result = torch.onnx.export(program, opset_version=opset, dynamo=True, verbose=False)
        if result is None:
            raise RuntimeError("torch.onnx.export returns no program")
        return result.model_proto

    return write


_EXPORTERS = {"torchscript": _trace, "dynamo": _capture}


def _prove(
    write: Exporter, opset: int, tensors: tuple[Tensor, ...], expected: tuple[Tensor, ...]
) -> CallOutcome:
    try:
        model = write(opset)
    except Exception as error:
        return _refuse(error)
    version = next(item.version for item in model.opset_import if not item.domain)
    if version != opset:
        return CallOutcome(result=CallResult.REFUSED, message=f"the file has opset {version}")
    try:
        actual = _run(model, tensors)
    except Exception as error:
        is_missing = any(part in str(error) for part in _MISSING_KERNEL)
        result = CallResult.NO_KERNEL if is_missing else CallResult.INVALID
        return CallOutcome(result=result, message=_format_error(error))
    problem = _compare(actual, expected)
    result = CallResult.WRONG if problem else CallResult.RIGHT
    return CallOutcome(result=result, message=problem)


def _run(model: onnx.ModelProto, tensors: tuple[Tensor, ...]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [item.name for item in session.get_inputs()]
    if len(names) != len(tensors):
        raise ValueError(f"the file has {len(names)} inputs, the call has {len(tensors)}")
    return list(session.run(None, dict(zip(names, map(_to_array, tensors), strict=True))))


def _compare(actual: list[Any], expected: tuple[Tensor, ...]) -> str:
    """Return the first difference, or ""."""
    if len(actual) != len(expected):
        return f"{len(actual)} outputs, PyTorch has {len(expected)}"
    for value, tensor in zip(actual, map(_to_array, expected), strict=True):
        if not isinstance(value, np.ndarray):
            return f"a value of type {type(value).__name__}, PyTorch has a tensor"
        if value.dtype != tensor.dtype:
            return f"dtype {value.dtype}, PyTorch has {tensor.dtype}"
        if value.shape != tensor.shape:
            return f"shape {list(value.shape)}, PyTorch has {list(tensor.shape)}"
        if not np.allclose(value, tensor, rtol=_RTOL, atol=_ATOL, equal_nan=True):
            is_wrong = ~np.isclose(value, tensor, rtol=_RTOL, atol=_ATOL, equal_nan=True)
            first = tuple(int(index) for index in np.argwhere(is_wrong)[0])
            return f"{value[first]:.6g}, PyTorch has {tensor[first]:.6g}"
    return ""


def _list_tensors(value: Any) -> tuple[Tensor, ...]:
    return tuple(leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))


def _copy(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(tensor.detach().clone() for tensor in tensors)


def _to_array(tensor: Tensor) -> Any:
    """Return the values; complex numbers are pairs, as in the files."""
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return real.detach().resolve_neg().numpy()


def _refuse(error: Exception) -> CallOutcome:
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return CallOutcome(result=CallResult.REFUSED, message=_format_error(cause))


def _format_error(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0] if lines else ''}"
    return redact(join_lines(text), limit=_MESSAGE_LENGTH)
