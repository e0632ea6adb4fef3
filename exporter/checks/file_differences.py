"""The differences of two ONNX files that no run shows: names, types, sizes and weights."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, numpy_helper
from onnx.checker import ValidationError

from exporter.core.text import join_names, pluralize
from exporter.runtimes.graph_walk import (
    format_dtype,
    get_operator_key,
    iter_nodes,
    normalize_domain,
)
from exporter.runtimes.session import Array

#: Weights that a message names with their error.
_SHOWN = 3
_CHANGED = "have other values"
#: The dtypes of shapes, axes and indices.
_INTEGERS = frozenset({TensorProto.INT64, TensorProto.BOOL})


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphValue:
    """An input or an output of a file."""

    name: str
    dtype: str
    """PyTorch's name; empty if it is no tensor."""
    shape: tuple[int | str, ...]
    """The name of a free axis is "" if the file has none."""
    has_rank: bool = True

    def __str__(self) -> str:
        if not self.dtype:
            return "no tensor"
        sizes = ", ".join(str(dim) or "?" for dim in self.shape)
        return f"{self.dtype} [{sizes}]" if self.has_rank else f"{self.dtype} of any rank"


def read_inputs(proto: ModelProto) -> list[GraphValue]:
    """Return the inputs without the weights, which old files repeat as inputs."""
    stored = {item.name for item in proto.graph.initializer}
    return [_read_value(item) for item in proto.graph.input if item.name not in stored]


def read_outputs(proto: ModelProto) -> list[GraphValue]:
    return [_read_value(item) for item in proto.graph.output]


def _read_value(item: ValueInfoProto) -> GraphValue:
    if not item.type.HasField("tensor_type"):
        return GraphValue(name=item.name, dtype="", shape=(), has_rank=False)
    kind = item.type.tensor_type
    return GraphValue(
        name=item.name,
        dtype=format_dtype(kind.elem_type),
        shape=tuple(
            int(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param
            for dim in kind.shape.dim
        ),
        has_rank=kind.HasField("shape"),
    )


@dataclass(slots=True)
class Difference:
    """What makes a file red, and what only a reader should know."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def format(self) -> str:
        return "; ".join((*self.problems, *self.notes))

    def blame_values(self) -> Difference:
        """Return it with other values as a problem, if the numbers of the files differ."""
        changed = [text for text in self.notes if _CHANGED in text]
        rest = [text for text in self.notes if text not in changed]
        return Difference(problems=[*self.problems, *changed], notes=rest)


def compare_interfaces(file: ModelProto, reference: ModelProto) -> Difference:
    """Compare the names, types and sizes of inputs and outputs, and the opsets."""
    difference = Difference()
    _compare_values("input", read_inputs(file), read_inputs(reference), difference)
    _compare_values("output", read_outputs(file), read_outputs(reference), difference)
    one, other = read_opsets(file), read_opsets(reference)
    # Optimizers import domains that no node uses.
    used = {domain for proto in (file, reference) for domain, _, _ in _count_operators(proto)}
    for domain in sorted(used & (one.keys() | other.keys())):
        if one.get(domain) != other.get(domain):
            name = f"opset of {domain}" if domain else "opset"
            versions = [str(each.get(domain, "none")) for each in (one, other)]
            difference.notes.append(f"{name} {versions[0]}, the reference has {versions[1]}")
    return difference


def read_opsets(proto: ModelProto) -> dict[str, int]:
    """Return the version of each domain; "" is ONNX's own."""
    return {normalize_domain(item.domain): int(item.version) for item in proto.opset_import}


def _compare_values(
    kind: str,
    values: Sequence[GraphValue],
    expected: Sequence[GraphValue],
    difference: Difference,
) -> None:
    names, others = [item.name for item in values], [item.name for item in expected]
    if sorted(names) != sorted(others):
        text = f"the {kind}s are {join_names(names)}, the reference has {join_names(others)}"
        difference.problems.append(text)
    elif names != others:
        text = f"the {kind}s have another order: {join_names(names)}, in the reference "
        difference.problems.append(f"{text}{join_names(others)}")
    for item, other in pair_values(values, expected):
        subject = f"{kind} '{item.name}'"
        text = f"{subject} is {item}, the reference has {other}"
        is_other_rank = item.has_rank and other.has_rank and len(item.shape) != len(other.shape)
        if item.dtype != other.dtype or is_other_rank:
            difference.problems.append(text)
            continue
        for index, (dim, known) in enumerate(zip(item.shape, other.shape, strict=False)):
            axis = f"axis {index} of {subject}"
            if dim == known:
                continue
            if isinstance(dim, int) and isinstance(known, int):
                difference.problems.append(f"{axis} is {dim}, the reference has {known}")
            elif isinstance(dim, int) and kind == "input":
                free = f"'{known}'" if known else "a free axis"
                difference.problems.append(f"{axis} is fixed at {dim}, the reference has {free}")
            elif isinstance(dim, str):
                name = f"is '{dim}'" if dim else "has no name"
                other_name = repr(known) if known else "none"
                difference.notes.append(f"{axis} {name}, the reference has {other_name}")


def pair_values(
    values: Sequence[GraphValue], expected: Sequence[GraphValue]
) -> list[tuple[GraphValue, GraphValue]]:
    """Return the values of both files with equal names, or at equal positions if all differ."""
    known = {item.name: item for item in expected}
    pairs = [(item, known[item.name]) for item in values if item.name in known]
    if not pairs and len(values) == len(expected):
        return list(zip(values, expected, strict=True))
    return pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weight:
    """A stored tensor without its values."""

    tensor: TensorProto
    digest: str

    @property
    def kind(self) -> tuple[int, tuple[int, ...]]:
        return self.tensor.data_type, tuple(self.tensor.dims)


def compare_weights(
    file: ModelProto, file_folder: Path, reference: ModelProto, reference_folder: Path
) -> Difference:
    """Compare the stored tensors by their names, and those of other names by their values.

    A weight that has another value is a problem if both graphs have the same operators: then no
    rewrite explains it. Else the outputs decide, and it is a note.
    """
    difference = Difference()
    stored, known = _read_weights(file, file_folder), _read_weights(reference, reference_folder)
    common = [name for name in known if name in stored and stored[name].kind == known[name].kind]
    changed = [name for name in common if stored[name].digest != known[name].digest]
    texts = [
        _describe_change(name, stored[name], known[name], (file_folder, reference_folder))
        for name in changed[:_SHOWN]
    ]
    if changed:
        more = ["..."] * (len(changed) > _SHOWN)
        count = f"{len(changed)} of {pluralize(len(known), 'weight')}"
        text = f"{count} of the reference {_CHANGED}: {', '.join(texts + more)}"
        # The integers of shapes and axes may be others in an equal graph: the outputs decide.
        is_trained = any(stored[name].kind[0] not in _INTEGERS for name in changed)
        is_same_graph = _count_operators(file) == _count_operators(reference)
        # `Gemm` takes a transposed weight if its attribute says so.
        is_same_graph &= _count_readers(file, changed) == _count_readers(reference, changed)
        (difference.problems if is_same_graph and is_trained else difference.notes).append(text)
    digests = {weight.digest for weight in stored.values()}
    others = [name for name in known if name not in common]
    missing = [name for name in others if known[name].digest not in digests]
    known_digests = {weight.digest for weight in known.values()}
    new = [name for name in stored if name not in common]
    new = [name for name in new if stored[name].digest not in known_digests]
    texts = []
    for name in missing:
        # Only one weight of each file has this type and shape, so they are the same weight.
        candidates = [each for each in new if stored[each].kind == known[name].kind]
        rivals = [each for each in missing if known[each].kind == known[name].kind]
        if len(candidates) == len(rivals) == 1:
            weights = (stored[candidates[0]], known[name], (file_folder, reference_folder))
            texts.append(_describe_change(f"{name}' as '{candidates[0]}", *weights))
    if texts:
        shown = ", ".join(texts[:_SHOWN] + ["..."] * (len(texts) > _SHOWN))
        count = f"{len(texts)} of {pluralize(len(known), 'weight')} of the reference {_CHANGED}"
        difference.notes.append(f"{count} under other names: {shown}")
    if renamed := len(others) - len(missing):
        difference.notes.append(f"{pluralize(renamed, 'weight')} of the reference by other names")
    if missing:
        text = f"{len(missing)} of {pluralize(len(known), 'weight')} of the reference are not in "
        difference.notes.append(f"{text}the file: {join_names(missing, _SHOWN)}")
    return difference


def list_tensors(proto: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """Yield the stored tensors of the main graph by the names of their values."""
    yield from ((tensor.name, tensor) for tensor in proto.graph.initializer)
    for node in proto.graph.node:
        if node.op_type == "Constant" and len(node.output) == 1:
            values = (item.t for item in node.attribute if item.name == "value")
            yield from ((node.output[0], tensor) for tensor in values)


def _read_weights(proto: ModelProto, folder: Path) -> dict[str, _Weight]:
    weights = {}
    for name, tensor in list_tensors(proto):
        digest = hashlib.sha256(_read_array(tensor, folder).tobytes()).hexdigest()
        weights[name] = _Weight(tensor=tensor, digest=f"{tensor.data_type} {digest}")
    return weights


def _read_array(tensor: TensorProto, folder: Path) -> Array:
    """Return the values.

    Raises:
        ValueError: If they cannot be read.
    """
    try:
        return np.asarray(numpy_helper.to_array(tensor, base_dir=str(folder)))
    except (OSError, ValueError, RuntimeError, TypeError, ValidationError) as error:
        raise ValueError(f"the weight '{tensor.name}' cannot be read") from error


def _describe_change(name: str, weight: _Weight, known: _Weight, folders: tuple[Path, Path]) -> str:
    pairs = zip((weight, known), folders, strict=True)
    one, other = (_read_array(each.tensor, folder) for each, folder in pairs)
    if one.dtype.kind not in "fiu" or not one.size:
        return f"'{name}'"
    values, expected = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore"):
        errors = np.abs(values - expected)
    count = int((one != other).sum())
    if one.ndim > 1 and np.array_equal(one.T, other, equal_nan=one.dtype.kind == "f"):
        return f"'{name}' (transposed)"
    return f"'{name}' ({count} of {one.size}, by up to {np.nanmax(errors):.1e})"


def _count_operators(proto: ModelProto) -> Counter[tuple[str, str, str]]:
    return Counter(map(get_operator_key, iter_nodes(proto)))


def _count_readers(proto: ModelProto, names: Sequence[str]) -> Counter[object]:
    """Return the nodes that read values, by operator and attributes that are no tensor or graph."""
    known = {*names}
    return Counter(
        (
            get_operator_key(node),
            frozenset(
                (item.name, item.SerializeToString(deterministic=True))
                for item in node.attribute
                if not (item.HasField("t") or item.HasField("g"))
            ),
        )
        for node in iter_nodes(proto)
        if known.intersection(node.input)
    )


def list_tables(proto: ModelProto) -> Iterator[tuple[str, int]]:
    """Yield each input that selects rows of a stored table, with the number of rows."""
    rows = {name: tensor.dims for name, tensor in list_tensors(proto)}
    sources: dict[str, str] = {item.name: item.name for item in read_inputs(proto)}
    for node in proto.graph.node:
        names = list(node.input)
        if node.op_type in _MOVES and names[:1] and names[0] in sources:
            sources[node.output[0]] = sources[names[0]]
        elif node.op_type == "Gather" and names[0] in rows and names[1] in sources:
            axis = next((item.i for item in node.attribute if item.name == "axis"), 0)
            if -len(rows[names[0]]) <= axis < len(rows[names[0]]):
                yield sources[names[1]], int(rows[names[0]][axis])
        elif node.op_type == "EmbedLayerNormalization":  # ONNX Runtime's, after its optimizer
            for index, table in ((0, 2), (1, 4)):
                if len(names) > table and names[index] in sources and names[table] in rows:
                    yield sources[names[index]], int(rows[names[table]][0])


#: Operators that pass the integers of their first input.
_MOVES = frozenset({"Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Transpose"})
