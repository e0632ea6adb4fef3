"""The check `signature`: the interface of the file is the interface of the contract.

Names, order, dtypes, sizes and axis names of inputs and outputs are compared. The message names all
differences. An input without effect on any output is a difference too.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence

from onnx import ModelProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, numpy_helper
from onnx.checker import ValidationError

from exporter.checks.files.weight_inputs import find_weight_input_problems
from exporter.checks.protocol import CheckContext, run_structure_check
from exporter.core.text import join_names
from exporter.manifest import Dim, Input, Output
from exporter.records.record import CheckResult
from exporter.runtimes.graph_walk import find_needed_names, format_dtype, index_functions

_FIX = (
    "set `options.do_constant_folding = false` (TorchScript) or `options.optimize = false` "
    "(dynamo) to keep weights as they are"
)


def find_weight_name_problems(context: CheckContext, model: ModelProto) -> Iterator[str]:
    """Yield the problems of named weights; nothing if the manifest names no weight."""
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    inputs = {item.name for item in model.graph.input}
    are_inputs = context.spec.options.get("export_params") is False
    digests: dict[str, str] = {}
    for weight in context.reference.weights:
        tensor = stored.get(weight.name)
        if tensor is not None:
            subject = f"the weight '{weight.name}' is not {weight.source}"
            actual = (format_dtype(tensor.data_type), tuple(tensor.dims))
            if actual != (weight.dtype, weight.shape):
                yield (
                    f"{subject}: it is {actual[0]} {list(actual[1])}, "
                    f"expected {weight.dtype} {list(weight.shape)}"
                )
            elif _hash_values(context, tensor) != weight.sha256:
                yield f"{subject}: it has other values"
        elif weight.is_read and not (are_inputs and weight.name in inputs):
            digests = digests or {_hash_values(context, t): t.name for t in stored.values()}
            other = digests.get(weight.sha256, "")
            cause = f"it has the name '{other}'" if other else f"the exporter replaced it; {_FIX}"
            yield f"no weight has the name '{weight.name}' ({weight.source}): {cause}"


def _hash_values(context: CheckContext, tensor: TensorProto) -> str:
    """Return the digest of the values, or "" if they cannot be read."""
    try:
        array = numpy_helper.to_array(tensor, base_dir=str(context.path.parent))
    except (OSError, ValueError, RuntimeError, TypeError, ValidationError):
        return ""  # the check `wellformed` reports it
    return hashlib.sha256(array.tobytes()).hexdigest()


NAME = "signature"
#: The first IR version in which an initializer need not be an input.
_IR_WITHOUT_LISTED_INITIALIZERS = 4


def check_signature(context: CheckContext) -> CheckResult:
    """Compare every input and output of the graph with the contract."""
    return run_structure_check(NAME, context, _find_problems)


def _find_problems(context: CheckContext, model: ModelProto) -> Iterator[str]:
    spec, graph = context.spec, model.graph
    stored = {item.name for item in graph.initializer}
    stored |= {item.values.name for item in graph.sparse_initializer}
    declared = {item.name for item in spec.inputs}
    weights = context.reference.weight_inputs if spec.weights_are_inputs else ()
    undeclared = stored | {weight.name for weight in weights}
    inputs = [i for i in graph.input if i.name not in undeclared or i.name in declared]
    yield from _compare_values("input", inputs, spec.inputs)
    listed = [item.name for item in graph.input if item.name in stored]
    yield from _find_listed_initializers(context, model, listed)
    outputs = (item.name for item in graph.output)
    needed = find_needed_names(graph.node, outputs, index_functions(model))
    for item in inputs:
        if item.name in declared and item.name not in needed:
            yield f"the graph ignores input '{item.name}'"
    yield from _compare_values("output", list(graph.output), spec.outputs)
    yield from find_weight_name_problems(context, model)
    if spec.weights_are_inputs:
        yield from find_weight_input_problems(model, weights, declared, needed)


def _find_listed_initializers(
    context: CheckContext, model: ModelProto, listed: Sequence[str]
) -> Iterator[str]:
    declared = {item.name for item in context.spec.inputs}
    for name in sorted(declared.intersection(listed)):
        yield f"input '{name}' has a default value: the file runs without it"
    others = [name for name in listed if name not in declared]
    is_requested = context.spec.options.get("keep_initializers_as_inputs") is True
    if is_requested and not others and model.graph.initializer:
        yield "the initializers are not listed as inputs"
    if others and not is_requested and model.ir_version >= _IR_WITHOUT_LISTED_INITIALIZERS:
        yield f"{len(others)} initializers are listed as inputs: {join_names(others)}"


def _compare_values(
    side: str, values: Sequence[ValueInfoProto], declared: Sequence[Input | Output]
) -> Iterator[str]:
    names = [item.name for item in values]
    expected = [item.name for item in declared]
    if names != expected:
        verb = "have another order" if sorted(names) == sorted(expected) else "differ"
        counts = f"the file has {_count_names(names)}, declared {_count_names(expected)}"
        yield f"{side}s {verb}: {counts}"
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{count} {side}s have the name '{name}'"
    by_name = {item.name: item for item in values}
    for item in declared:
        if item.name in by_name:
            yield from _compare_value(f"{side} '{item.name}'", by_name[item.name], item)


def _count_names(names: Sequence[str]) -> str:
    return f"{len(names)} ({', '.join(names)})" if names else "none"


def _compare_value(subject: str, value: ValueInfoProto, declared: Input | Output) -> Iterator[str]:
    subject, tensor, problem = _find_tensor_type(subject, value.type, declared)
    if problem:
        yield problem
        return
    dtype, shape = format_dtype(tensor.elem_type), declared.file_shape
    if dtype != declared.file_dtype:
        expected = declared.dtype
        if declared.is_complex:
            expected = f"{declared.dtype}, stored as pairs of {declared.file_dtype}"
        yield f"{subject} is {dtype}, declared {expected}"
    expected = ", ".join(map(str, shape))
    if not tensor.HasField("shape"):
        yield f"{subject} has no shape, declared [{expected}]"
    elif len(tensor.shape.dim) != len(shape):
        actual = ", ".join(map(_format_dimension, tensor.shape.dim))
        yield f"{subject} is [{actual}], declared [{expected}]"
    else:
        for index, (dim, size) in enumerate(zip(tensor.shape.dim, shape, strict=True)):
            if problem := _compare_dimension(subject, index, dim, size):
                yield problem


def _find_tensor_type(
    subject: str, kind: TypeProto, declared: Input | Output
) -> tuple[str, TypeProto.Tensor, str]:
    """Return the tensor type inside an optional or a sequence, its name, and a problem."""
    none = TypeProto.Tensor()
    if isinstance(declared, Input) and declared.optional:
        if _name_kind(kind) != "optional":
            return subject, none, f"{subject} is declared optional, but the file requires it"
        kind = kind.optional_type.elem_type
    if isinstance(declared, Output) and declared.kind == "sequence":
        if _name_kind(kind) != "sequence":
            return subject, none, f"{subject} is not a sequence but {_name_kind(kind)}"
        kind, subject = kind.sequence_type.elem_type, f"each item of {subject}"
    if _name_kind(kind) != "tensor":
        return subject, none, f"{subject} is not a tensor but {_name_kind(kind)}"
    return subject, kind.tensor_type, ""


def _name_kind(kind: TypeProto) -> str:
    return (kind.WhichOneof("value") or "of no type").removesuffix("_type")


def _format_dimension(dim: TensorShapeProto.Dimension) -> str:
    return str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"


def _compare_dimension(
    subject: str, index: int, dim: TensorShapeProto.Dimension, declared: Dim
) -> str:
    """Return the difference of one dimension, or "" if it is as declared."""
    is_fixed = dim.HasField("dim_value")
    if isinstance(declared, int):
        if is_fixed and dim.dim_value == declared:
            return ""
        actual = str(dim.dim_value) if is_fixed else f"dynamic ('{_format_dimension(dim)}')"
        return f"dimension {index} of {subject} is {actual}, declared {declared}"
    if is_fixed:
        return f"axis '{declared}' of {subject} is fixed at {dim.dim_value}"
    if dim.dim_param != declared:
        actual = f"has the name '{dim.dim_param}'" if dim.dim_param else "has no name"
        return f"axis '{declared}' of {subject} {actual}"
    return ""
