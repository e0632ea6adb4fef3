"""Mutators that change an output only under a condition: one size, one value, one column."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

from benchmarks.audit.mutators.draft import INTEGERS, Array, Draft

#: Sizes of an axis and integers of an input. Exports and checks treat 1 and 2 specially.
_SIZES = (1, 2, 3, 4, 5, 7, 8, 16)
_VALUES = (0, 1, 2, 3)
_DIVISORS = (2, 8)
#: Indices of the first axis of an output.
_ROWS = (0, 1, 2)
#: Element types of inputs that may be masks.
_MASKS = (*INTEGERS, TensorProto.BOOL)


def change_at_one_size(draft: Draft) -> str:
    """Change an output if an axis has one size."""
    axes = list(_list_axes(draft))
    if not axes:
        return ""
    (name, value, index), size = draft.rng.choice(axes), draft.rng.choice(_SIZES)
    _compute_size(draft, value, index, "size")
    _add_node(draft, "Equal", ["size", _store(draft, np.array(size))], "condition")
    draft.sizes.append({name: size})
    return _change_output(draft, f"{name} is {size}")


def change_at_multiples(draft: Draft) -> str:
    """Change an output if the size of an axis is even, or a multiple of 8."""
    axes = list(_list_axes(draft))
    if not axes:
        return ""
    (name, value, index), divisor = draft.rng.choice(axes), draft.rng.choice(_DIVISORS)
    _compute_size(draft, value, index, "size")
    factor = _store(draft, np.array(divisor))
    _add_node(draft, "Div", ["size", factor], "quotient")
    _add_node(draft, "Mul", ["quotient", factor], "multiple")
    _add_node(draft, "Equal", ["size", "multiple"], "condition")
    draft.sizes.append({name: divisor})
    return _change_output(draft, f"{name} is a multiple of {divisor}")


def change_at_equal_axes(draft: Draft) -> str:
    """Change an output if two axes have the same size."""
    axes = {name: (value, index) for name, value, index in _list_axes(draft)}
    if len(axes) < 2:
        return ""
    one, other = draft.rng.sample(sorted(axes), 2)
    _compute_size(draft, *axes[one], "size")
    _compute_size(draft, *axes[other], "other_size")
    _add_node(draft, "Equal", ["size", "other_size"], "condition")
    draft.sizes += [{one: size, other: size} for size in _SIZES]
    return _change_output(draft, f"{one} equals {other}")


def change_at_one_value(draft: Draft) -> str:
    """Change an output if an integer input contains one value."""
    inputs = [v for v in draft.model.graph.input if v.type.tensor_type.elem_type in INTEGERS]
    if not inputs:
        return ""
    item, value = draft.rng.choice(inputs), draft.rng.choice(_VALUES)
    _add_node(draft, "Cast", [item.name], "integers", ("to", TensorProto.INT64))
    _add_node(draft, "Equal", ["integers", _store(draft, np.array(value))], "found")
    _add_node(draft, "Cast", ["found"], "found_number", ("to", TensorProto.FLOAT))
    _add_node(draft, "ReduceMax", ["found_number"], "any_number", ("keepdims", 0))
    _add_node(draft, "Cast", ["any_number"], "condition", ("to", TensorProto.BOOL))
    draft.rows = (value,)
    return _change_output(draft, f"{item.name} contains {value}")


def change_one_column(draft: Draft) -> str:
    """Change one index of the last axis of an output."""
    sizes = {
        item.name: item.type.tensor_type.shape.dim[-1].dim_value
        for item in _list_outputs(draft)
        if item.type.tensor_type.shape.dim
    }
    names = sorted(name for name, size in sizes.items() if size > 1)
    if not names:
        return ""
    name = draft.rng.choice(names)
    column = draft.rng.randrange(sizes[name])
    flags = np.arange(sizes[name]) == column
    _add_node(draft, "Identity", [_store(draft, flags)], "condition")
    return _change_output(draft, f"the last index is {column}", name, factor=1.01)


def change_one_row(draft: Draft) -> str:
    """Change one index of the first axis of an output."""
    names = sorted(
        item.name for item in _list_outputs(draft) if len(item.type.tensor_type.shape.dim) > 1
    )
    if not names:
        return ""
    name, row = draft.rng.choice(names), draft.rng.choice(_ROWS)
    (output,) = [item for item in _list_outputs(draft) if item.name == name]
    rank = len(output.type.tensor_type.shape.dim)
    _compute_size(draft, f"{name}_right", 0, "rows")
    bounds = [_store(draft, np.array(number)) for number in (0, 1)]
    _add_node(draft, "Range", [bounds[0], "rows", bounds[1]], "numbers")
    shape = _store(draft, np.array([-1] + [1] * (rank - 1)))
    _add_node(draft, "Reshape", ["numbers", shape], "number")
    _add_node(draft, "Equal", ["number", _store(draft, np.array(row))], "condition")
    return _change_output(draft, f"the first index is {row}", name, factor=1.01)


def change_at_masks(draft: Draft) -> str:
    """Change an output if an input of 0 and 1 excludes no element, or a whole row."""
    inputs = [
        item
        for item in draft.model.graph.input
        if item.type.tensor_type.elem_type in _MASKS and len(item.type.tensor_type.shape.dim) > 1
    ]
    if not inputs:
        return ""
    item, is_full = draft.rng.choice(inputs), draft.rng.random() < 0.5
    _add_node(draft, "Cast", [item.name], "mask", ("to", TensorProto.FLOAT))
    if is_full:
        _add_node(draft, "ReduceMin", ["mask"], "least", ("keepdims", 0))
        _add_node(draft, "Equal", ["least", _store(draft, np.array(1, np.float32))], "condition")
        return _change_output(draft, f"{item.name} has no 0")
    # Cumulative sums along the rows: a row with one element is the smallest allowed one.
    _add_node(draft, "CumSum", ["mask", _store(draft, np.array(-1))], "counts")
    _add_node(draft, "ReduceMin", ["counts"], "least", ("keepdims", 0))
    _add_node(draft, "Equal", ["least", _store(draft, np.array(0, np.float32))], "condition")
    return _change_output(draft, f"{item.name} has a row that begins with 0")


def change_at_range_end(draft: Draft) -> str:
    """Change an output if a float input contains 0, a large number or no negative number."""
    inputs = [
        item.name
        for item in draft.model.graph.input
        if item.type.tensor_type.elem_type == TensorProto.FLOAT
    ]
    if not inputs:
        return ""
    name, kind = draft.rng.choice(inputs), draft.rng.randrange(3)
    operator, test, number, text = (
        ("ReduceMin", "Equal", 0, "contains 0"),
        ("ReduceMax", "Greater", 5, "has a magnitude above 5"),
        ("ReduceMin", "GreaterOrEqual", 0, "has no negative number"),
    )[kind]
    source = name
    if kind < 2:
        _add_node(draft, "Abs", [name], "magnitudes")
        source = "magnitudes"
    _add_node(draft, operator, [source], "extreme", ("keepdims", 0))
    _add_node(draft, test, ["extreme", _store(draft, np.array(number, np.float32))], "condition")
    draft.numbers = (6.0,) if kind == 1 else (0.0, 0.5)
    return _change_output(draft, f"{name} {text}")


def _list_axes(draft: Draft) -> Iterator[tuple[str, str, int]]:
    """Yield the name of each dynamic axis with an input and the dimension that has it."""
    for item in draft.model.graph.input:
        for index, dim in enumerate(item.type.tensor_type.shape.dim):
            if dim.dim_param:
                yield dim.dim_param, item.name, index


def _list_outputs(draft: Draft) -> list[ValueInfoProto]:
    """Return the outputs of floating numbers that a node computes."""
    computed = {name for node in draft.model.graph.node for name in node.output}
    kind = TensorProto.FLOAT
    outputs = draft.model.graph.output
    return [o for o in outputs if o.name in computed and o.type.tensor_type.elem_type == kind]


def _compute_size(draft: Draft, value: str, index: int, result: str) -> None:
    _add_node(draft, "Shape", [value], f"{result}_shape")
    _add_node(draft, "Gather", [f"{result}_shape", _store(draft, np.array(index))], result)


def _change_output(draft: Draft, condition: str, name: str = "", factor: float = 1.5) -> str:
    """Multiply an output by a factor if the value `condition` of the graph is true."""
    names = [item.name for item in _list_outputs(draft)]
    if not names:
        return ""
    name = name or draft.rng.choice(names)
    graph = draft.model.graph
    hidden = f"{name}_right"
    for node in graph.node:
        node.input[:] = [hidden if each == name else each for each in node.input]
        node.output[:] = [hidden if each == name else each for each in node.output]
    number = _store(draft, np.array(factor, np.float32))
    _add_node(draft, "Mul", [hidden, number], "wrong")
    inputs = [_rename("condition"), _rename("wrong"), hidden]
    graph.node.append(helper.make_node("Where", inputs, [name]))
    return f"{name} times {factor:g} if {condition}"


def _add_node(
    draft: Draft,
    operator: str,
    inputs: list[str],
    result: str,
    attribute: tuple[str, int] = ("", 0),
) -> None:
    """Add a node; names of values that this module added have a prefix."""
    computed = {name for node in draft.model.graph.node for name in node.output}
    inputs = [_rename(name) if _rename(name) in computed else name for name in inputs]
    node = helper.make_node(operator, inputs, [_rename(result)])
    if attribute[0]:
        node.attribute.append(helper.make_attribute(*attribute))
    draft.model.graph.node.append(node)


def _rename(name: str) -> str:
    return f"mutant.{name}"


def _store(draft: Draft, array: Array) -> str:
    """Add a stored tensor and return its name."""
    name = _rename(f"constant_{len(draft.model.graph.initializer)}")
    draft.model.graph.initializer.append(numpy_helper.from_array(array, name))
    return name


CONDITIONS = (
    change_at_one_size,
    change_at_multiples,
    change_at_equal_axes,
    change_at_one_value,
    change_one_column,
    change_one_row,
    change_at_masks,
    change_at_range_end,
)
