"""Mutators of what the file says of itself: shapes, axis names, dtypes, names, order, versions.

In: a `Draft`. Out: the draft with one such word changed, and the change in one line; an empty line
where there was no place for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from onnx import TensorProto, TensorShapeProto, TypeProto, ValueInfoProto

from exporter.tools.audit.child.mutators.draft import Draft

Dim = TensorShapeProto.Dimension


def _ends(draft: Draft) -> list[ValueInfoProto]:
    return [*draft.model.graph.input, *draft.model.graph.output]


def _dims(values: Iterable[ValueInfoProto], wanted: Callable[[Dim], bool]) -> list[tuple[str, Dim]]:
    return [
        (f"dimension {index} of {value.name}", dim)
        for value in values
        for index, dim in enumerate(_tensor(value.type).shape.dim)
        if wanted(dim)
    ]


def _tensor(type_: TypeProto) -> TypeProto.Tensor:
    """Of a sequence, the type of its items."""
    is_sequence = type_.HasField("sequence_type")
    return (type_.sequence_type.elem_type if is_sequence else type_).tensor_type


def _is_fixed(dim: Dim) -> bool:
    return bool(dim.HasField("dim_value"))


def size_changed(draft: Draft) -> str:
    """A fixed size of an input or output one larger."""
    dims = _dims(_ends(draft), _is_fixed)
    if not dims:
        return ""
    where, dim = draft.rng.choice(dims)
    dim.dim_value += 1
    return f"{where} declared {dim.dim_value}, was {dim.dim_value - 1}"


def axis_fixed(draft: Draft) -> str:
    """A dynamic axis of an input or output fixed at 3."""
    dims = _dims(_ends(draft), lambda dim: not _is_fixed(dim))
    if not dims:
        return ""
    where, dim = draft.rng.choice(dims)
    name = dim.dim_param
    dim.dim_value = 3
    return f"{where} fixed at 3, was '{name}'"


def axis_renamed(draft: Draft) -> str:
    """A dynamic axis of an input or output under another name."""
    dims = _dims(_ends(draft), lambda dim: not _is_fixed(dim))
    if not dims:
        return ""
    where, dim = draft.rng.choice(dims)
    name = dim.dim_param
    dim.dim_param = f"{name}_1"
    return f"{where} called '{dim.dim_param}', was '{name}'"


def size_loosened(draft: Draft) -> str:
    """A fixed size of an input or output declared dynamic."""
    dims = _dims(_ends(draft), _is_fixed)
    if not dims:
        return ""
    where, dim = draft.rng.choice(dims)
    size = dim.dim_value
    dim.dim_param = "any"
    return f"{where} declared dynamic, was {size}"


def inner_size_changed(draft: Draft) -> str:
    """A fixed size of a value inside the graph declared one larger."""
    dims = _dims(draft.model.graph.value_info, _is_fixed)
    if not dims:
        return ""
    where, dim = draft.rng.choice(dims)
    dim.dim_value += 1
    return f"{where} (inside) declared {dim.dim_value}, was {dim.dim_value - 1}"


def dtype_changed(draft: Draft) -> str:
    """Another dtype declared for an input, an output or a value inside."""
    values = [*_ends(draft), *draft.model.graph.value_info]
    value = draft.rng.choice([v for v in values if _tensor(v.type).elem_type])
    old = _tensor(value.type).elem_type
    new = TensorProto.DOUBLE if old == TensorProto.FLOAT else TensorProto.FLOAT
    _tensor(value.type).elem_type = new
    names = [TensorProto.DataType.Name(kind) for kind in (new, old)]
    return f"{value.name} declared {names[0]}, was {names[1]}"


def renamed(draft: Draft) -> str:
    """An input or output under another name, everywhere in the graph."""
    value = draft.rng.choice(_ends(draft))
    old, new = value.name, f"{value.name}_1"
    graph = draft.model.graph
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    for item in _ends(draft):
        if item.name == old:
            item.name = new
    return f"{old} called {new}"


def inputs_reordered(draft: Draft) -> str:
    """Two inputs of the graph in another order."""
    return _reordered(draft, "inputs", list(draft.model.graph.input))


def outputs_reordered(draft: Draft) -> str:
    """Two outputs of the graph in another order."""
    return _reordered(draft, "outputs", list(draft.model.graph.output))


def _reordered(draft: Draft, side: str, values: list[ValueInfoProto]) -> str:
    if len(values) < 2:
        return ""
    i, j = sorted(draft.rng.sample(range(len(values)), 2))
    line = f"{side} {values[i].name} and {values[j].name} in another order"
    first = ValueInfoProto()
    first.CopyFrom(values[i])
    values[i].CopyFrom(values[j])
    values[j].CopyFrom(first)
    return line


def opset_changed(draft: Draft) -> str:
    """Another opset imported."""
    item = draft.rng.choice(list(draft.model.opset_import))
    old = item.version
    item.version += draft.rng.choice((-1, 1))
    return f"opset of '{item.domain or 'ai.onnx'}' from {old} to {item.version}"


def ir_version_raised(draft: Draft) -> str:
    """The next IR version."""
    draft.model.ir_version += 1
    return f"IR version from {draft.model.ir_version - 1} to {draft.model.ir_version}"


SHAPES = (
    size_changed,
    axis_fixed,
    axis_renamed,
    size_loosened,
    inner_size_changed,
    dtype_changed,
)
HEADERS = (renamed, inputs_reordered, outputs_reordered, opset_changed, ir_version_raised)
