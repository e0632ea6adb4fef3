"""Mutators of the declared interface: shapes, axis names, dtypes, names, order, versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from onnx import TensorProto, TensorShapeProto, TypeProto, ValueInfoProto

from benchmarks.audit.mutators.draft import Draft

Dim = TensorShapeProto.Dimension


def _list_interface(draft: Draft) -> list[ValueInfoProto]:
    return [*draft.model.graph.input, *draft.model.graph.output]


def _list_dimensions(
    values: Iterable[ValueInfoProto], condition: Callable[[Dim], bool]
) -> list[tuple[str, Dim]]:
    return [
        (f"dimension {index} of {value.name}", dim)
        for value in values
        for index, dim in enumerate(_get_tensor_type(value.type).shape.dim)
        if condition(dim)
    ]


def _get_tensor_type(type_: TypeProto) -> TypeProto.Tensor:
    """Return the tensor type; of a sequence, the type of its items."""
    is_sequence = type_.HasField("sequence_type")
    return (type_.sequence_type.elem_type if is_sequence else type_).tensor_type


def _is_fixed(dim: Dim) -> bool:
    return bool(dim.HasField("dim_value"))


def change_size(draft: Draft) -> str:
    """Declare a fixed size of an input or output one larger."""
    dims = _list_dimensions(_list_interface(draft), _is_fixed)
    if not dims:
        return ""
    subject, dim = draft.rng.choice(dims)
    dim.dim_value += 1
    return f"{subject} declared {dim.dim_value}, was {dim.dim_value - 1}"


def fix_axis(draft: Draft) -> str:
    """Fix a dynamic axis of an input or output at 3."""
    dims = _list_dimensions(_list_interface(draft), lambda dim: not _is_fixed(dim))
    if not dims:
        return ""
    subject, dim = draft.rng.choice(dims)
    name = dim.dim_param
    dim.dim_value = 3
    return f"{subject} fixed at 3, was '{name}'"


def rename_axis(draft: Draft) -> str:
    """Rename a dynamic axis of an input or output."""
    dims = _list_dimensions(_list_interface(draft), lambda dim: not _is_fixed(dim))
    if not dims:
        return ""
    subject, dim = draft.rng.choice(dims)
    name = dim.dim_param
    dim.dim_param = f"{name}_1"
    return f"{subject} called '{dim.dim_param}', was '{name}'"


def loosen_size(draft: Draft) -> str:
    """Declare a fixed size of an input or output dynamic."""
    dims = _list_dimensions(_list_interface(draft), _is_fixed)
    if not dims:
        return ""
    subject, dim = draft.rng.choice(dims)
    size = dim.dim_value
    dim.dim_param = "any"
    return f"{subject} declared dynamic, was {size}"


def change_inner_size(draft: Draft) -> str:
    """Declare a fixed size of a value inside the graph one larger."""
    dims = _list_dimensions(draft.model.graph.value_info, _is_fixed)
    if not dims:
        return ""
    subject, dim = draft.rng.choice(dims)
    dim.dim_value += 1
    return f"{subject} (inside) declared {dim.dim_value}, was {dim.dim_value - 1}"


def change_dtype(draft: Draft) -> str:
    """Declare another dtype of an input, an output or an inner value."""
    values = [*_list_interface(draft), *draft.model.graph.value_info]
    value = draft.rng.choice([v for v in values if _get_tensor_type(v.type).elem_type])
    old = _get_tensor_type(value.type).elem_type
    new = TensorProto.DOUBLE if old == TensorProto.FLOAT else TensorProto.FLOAT
    _get_tensor_type(value.type).elem_type = new
    names = [TensorProto.DataType.Name(kind) for kind in (new, old)]
    return f"{value.name} declared {names[0]}, was {names[1]}"


def rename_value(draft: Draft) -> str:
    """Rename an input or output in the whole graph."""
    value = draft.rng.choice(_list_interface(draft))
    old, new = value.name, f"{value.name}_1"
    graph = draft.model.graph
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    for item in _list_interface(draft):
        if item.name == old:
            item.name = new
    return f"{old} called {new}"


def reorder_inputs(draft: Draft) -> str:
    """Exchange two inputs of the graph."""
    return _swap_values(draft, "inputs", list(draft.model.graph.input))


def reorder_outputs(draft: Draft) -> str:
    """Exchange two outputs of the graph."""
    return _swap_values(draft, "outputs", list(draft.model.graph.output))


def _swap_values(draft: Draft, side: str, values: list[ValueInfoProto]) -> str:
    if len(values) < 2:
        return ""
    i, j = sorted(draft.rng.sample(range(len(values)), 2))
    line = f"{side} {values[i].name} and {values[j].name} in another order"
    first = ValueInfoProto()
    first.CopyFrom(values[i])
    values[i].CopyFrom(values[j])
    values[j].CopyFrom(first)
    return line


def change_opset(draft: Draft) -> str:
    """Import another opset."""
    item = draft.rng.choice(list(draft.model.opset_import))
    old = item.version
    item.version += draft.rng.choice((-1, 1))
    return f"opset of '{item.domain or 'ai.onnx'}' from {old} to {item.version}"


def raise_ir_version(draft: Draft) -> str:
    """Declare the next IR version."""
    draft.model.ir_version += 1
    return f"IR version from {draft.model.ir_version - 1} to {draft.model.ir_version}"


SHAPES = (
    change_size,
    fix_axis,
    rename_axis,
    loosen_size,
    change_inner_size,
    change_dtype,
)
HEADERS = (rename_value, reorder_inputs, reorder_outputs, change_opset, raise_ir_version)
