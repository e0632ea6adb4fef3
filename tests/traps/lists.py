"""Edits of the output list of `kinds.py:Pieces`, for the traps in `kinds.py`."""

from __future__ import annotations

from onnx import ModelProto, NodeProto, TensorProto, helper

_LIST, _BEFORE = "pieces", "before"


def _insert_before_output(model: ModelProto, *nodes: NodeProto) -> None:
    """Insert `nodes` between the list and the output list."""
    for item in model.graph.node:
        item.output[:] = [_BEFORE if name == _LIST else name for name in item.output]
        item.input[:] = [_BEFORE if name == _LIST else name for name in item.input]
    for name, value in (("first", 0), ("second", 1), ("third", 2), ("last", -1)):
        model.graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, [], [value]))
    model.graph.node.extend(nodes)


def _node(operator: str, *ends: str, **attributes: object) -> NodeProto:
    """Create a node; the last of `ends` is the output."""
    return helper.make_node(operator, list(ends[:-1]), [ends[-1]], **attributes)


def last_left_out(model: ModelProto) -> None:
    _insert_before_output(model, _node("SequenceErase", _BEFORE, "last", _LIST))


def last_first(model: ModelProto) -> None:
    _insert_before_output(
        model,
        _node("SequenceAt", _BEFORE, "last", "item"),
        _node("SequenceErase", _BEFORE, "last", "rest"),
        _node("SequenceInsert", "rest", "item", "first", _LIST),
    )


def last_off(model: ModelProto) -> None:
    model.graph.initializer.append(helper.make_tensor("by", TensorProto.FLOAT, [], [1e-3]))
    _insert_before_output(
        model,
        _node("SequenceAt", _BEFORE, "last", "item"),
        _node("SequenceErase", _BEFORE, "last", "rest"),
        _node("Add", "item", "by", "off"),
        _node("SequenceInsert", "rest", "off", _LIST),
    )


def three_items(model: ModelProto) -> None:
    names = ("first", "second", "third")
    items = [_node("SequenceAt", _BEFORE, name, f"item {name}") for name in names]
    sequence = _node("SequenceConstruct", *(f"item {name}" for name in names), _LIST)
    _insert_before_output(model, *items, sequence)


def of_another_dtype(model: ModelProto) -> None:
    _insert_before_output(
        model,
        _node("SequenceAt", _BEFORE, "first", "item"),
        _node("Cast", "item", "wide", to=TensorProto.DOUBLE),
        _node("SequenceConstruct", "wide", _LIST),
    )
    sequence = model.graph.output[0].type.sequence_type
    sequence.elem_type.tensor_type.elem_type = TensorProto.DOUBLE


def first_alone(model: ModelProto) -> None:
    _insert_before_output(model, _node("SequenceAt", _BEFORE, "first", _LIST))
    type_ = model.graph.output[0].type
    item = type_.sequence_type.elem_type.tensor_type
    shape = [dim.dim_value for dim in item.shape.dim]
    type_.CopyFrom(helper.make_tensor_type_proto(item.elem_type, shape))


def items_of_three(model: ModelProto) -> None:
    """Declare another size of the items in the signature."""
    item = model.graph.output[0].type.sequence_type.elem_type.tensor_type
    item.shape.dim[0].dim_value = 3
