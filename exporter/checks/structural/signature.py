"""`signature`: names, order, dtypes, sizes and axis names of inputs and outputs are the contract's.

Everything that differs is named at once. An input that no output depends on counts as dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from onnx import ModelProto, TensorShapeProto, TypeProto, ValueInfoProto

from exporter.checks.files.graph_walk import find_needed_names, index_functions
from exporter.checks.files.weight_inputs import find_weight_input_problems
from exporter.checks.protocol import CheckContext
from exporter.checks.structural.run_structure import run_structure_check
from exporter.checks.structural.weight_names import find_weight_name_problems
from exporter.core.text_format import join_names
from exporter.manifest import Dim, Input, Output
from exporter.records.record import CheckResult
from exporter.runtimes.dtypes import format_dtype

NAME = "signature"
_Side = Literal["input", "output"]
#: From here on, initializers need not be listed as inputs.
_IR_WITHOUT_LISTED_INITIALIZERS = 4


def check_signature(subject: CheckContext) -> CheckResult:
    """Holds every input and output of the graph against the contract."""
    return run_structure_check(NAME, subject, _find)


def _find(subject: CheckContext, model: ModelProto) -> Iterator[str]:
    spec, graph = subject.spec, model.graph
    stored = {item.name for item in graph.initializer}
    stored |= {item.values.name for item in graph.sparse_initializer}
    declared = {item.name for item in spec.inputs}
    weights = subject.reference.weight_inputs if spec.weights_are_inputs else ()
    besides = stored | {weight.name for weight in weights}
    inputs = [item for item in graph.input if item.name not in besides or item.name in declared]
    yield from _values("input", inputs, spec.inputs)
    listed = [item.name for item in graph.input if item.name in stored]
    yield from _listed_initializers(subject, model, listed)
    needed = find_needed_names(
        graph.node, (item.name for item in graph.output), index_functions(model)
    )
    for item in inputs:
        if item.name in declared and item.name not in needed:
            yield f"the graph ignores input '{item.name}'"
    yield from _values("output", list(graph.output), spec.outputs)
    yield from find_weight_name_problems(subject, model)
    if spec.weights_are_inputs:
        yield from find_weight_input_problems(model, weights, declared, needed)


def _listed_initializers(
    subject: CheckContext, model: ModelProto, listed: Sequence[str]
) -> Iterator[str]:
    declared = {item.name for item in subject.spec.inputs}
    for name in sorted(declared.intersection(listed)):
        yield f"input '{name}' has a default value: the file runs without it"
    others = [name for name in listed if name not in declared]
    asked = subject.spec.options.get("keep_initializers_as_inputs") is True
    if asked and not others and model.graph.initializer:
        yield "the initializers are not listed as inputs"
    if others and not asked and model.ir_version >= _IR_WITHOUT_LISTED_INITIALIZERS:
        names = join_names(others)
        yield f"{len(others)} initializers are listed as inputs: {names}"


def _values(
    side: _Side, found: Sequence[ValueInfoProto], declared: Sequence[Input | Output]
) -> Iterator[str]:
    names = [item.name for item in found]
    wanted = [item.name for item in declared]
    if names != wanted:
        both = f"the file has {_listing(names)}, declared {_listing(wanted)}"
        if sorted(names) == sorted(wanted):
            yield f"{side}s stand in another order: {both}"
        else:
            yield f"{side}s differ: {both}"
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{count} {side}s are called '{name}'"
    by_name = {item.name: item for item in found}
    for item in declared:
        if item.name in by_name:
            yield from _value(f"{side} '{item.name}'", by_name[item.name], item)


def _listing(names: Sequence[str]) -> str:
    return f"{len(names)} ({', '.join(names)})" if names else "none"


def _value(what: str, found: ValueInfoProto, declared: Input | Output) -> Iterator[str]:
    what, tensor, problem = _innermost(what, found.type, declared)
    if problem:
        yield problem
        return
    dtype, shape = format_dtype(tensor.elem_type), declared.file_shape
    if dtype != declared.file_dtype:
        yield f"{what} is {dtype}, declared {_declared_dtype(declared)}"
    wanted = ", ".join(map(str, shape))
    if not tensor.HasField("shape"):
        yield f"{what} has no shape, declared [{wanted}]"
    elif len(tensor.shape.dim) != len(shape):
        found_shape = ", ".join(map(_shown, tensor.shape.dim))
        yield f"{what} is [{found_shape}], declared [{wanted}]"
    else:
        pairs = zip(tensor.shape.dim, shape, strict=True)
        for index, (dim, size) in enumerate(pairs):
            if problem := _dimension(what, index, dim, size):
                yield problem


def _innermost(
    what: str, found: TypeProto, declared: Input | Output
) -> tuple[str, TypeProto.Tensor, str]:
    """The tensor type inside an optional or a sequence, its name, and what is wrong with those."""
    none = TypeProto.Tensor()
    if isinstance(declared, Input) and declared.optional:
        if _kind(found) != "optional":
            return what, none, f"{what} is declared optional, and the file always needs it"
        found = found.optional_type.elem_type
    if isinstance(declared, Output) and declared.kind == "sequence":
        if _kind(found) != "sequence":
            return what, none, f"{what} is no sequence but {_kind(found)}"
        found, what = found.sequence_type.elem_type, f"each item of {what}"
    if _kind(found) != "tensor":
        return what, none, f"{what} is no tensor but {_kind(found)}"
    return what, found.tensor_type, ""


def _kind(type_: TypeProto) -> str:
    return (type_.WhichOneof("value") or "of no type").removesuffix("_type")


def _declared_dtype(declared: Input | Output) -> str:
    if not declared.is_complex:
        return declared.dtype
    return f"{declared.dtype}, which is {declared.file_dtype} in pairs"


def _shown(dim: TensorShapeProto.Dimension) -> str:
    return str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"


def _dimension(what: str, index: int, dim: TensorShapeProto.Dimension, declared: Dim) -> str:
    is_fixed = dim.HasField("dim_value")
    if isinstance(declared, int):
        if is_fixed and dim.dim_value == declared:
            return ""
        is_what = str(dim.dim_value) if is_fixed else f"dynamic ('{_shown(dim)}')"
        return f"dimension {index} of {what} is {is_what}, declared {declared}"
    if is_fixed:
        return f"axis '{declared}' of {what} is fixed at {dim.dim_value}"
    if dim.dim_param != declared:
        called = f"called '{dim.dim_param}'" if dim.dim_param else "without a name"
        return f"axis '{declared}' of {what} is {called}"
    return ""
