"""Mutators of attributes: a float, an integer, one of several integers, a word."""

from __future__ import annotations

from onnx import AttributeProto, NodeProto

from benchmarks.audit.mutators.draft import Draft
from exporter.runtimes.graph_walk import iter_nodes

#: Words of the specification, each with another valid word for the same attribute.
_OTHER_WORDS = {
    b"nearest": b"linear",
    b"linear": b"nearest",
    b"cubic": b"linear",
    b"constant": b"edge",
    b"reflect": b"edge",
    b"edge": b"reflect",
    b"half_pixel": b"asymmetric",
    b"asymmetric": b"half_pixel",
    b"pytorch_half_pixel": b"asymmetric",
    b"align_corners": b"half_pixel",
    b"floor": b"ceil",
    b"round_prefer_floor": b"ceil",
    b"forward": b"reverse",
    b"DCR": b"CRD",
    b"CRD": b"DCR",
    b"tanh": b"none",
    b"none": b"tanh",
    b"Sigmoid": b"HardSigmoid",
    b"Tanh": b"Sigmoid",
    b"NOTSET": b"SAME_UPPER",
}


def _find_attributes(draft: Draft, kind: int) -> list[tuple[NodeProto, AttributeProto]]:
    return [
        (node, attribute)
        for node in iter_nodes(draft.model)
        for attribute in node.attribute
        if attribute.type == kind and not attribute.ref_attr_name
    ]


def format_node(node: NodeProto) -> str:
    """Return the operator and the first output of a node."""
    return f"{node.op_type} -> {next((name for name in node.output if name), '?')}"


def scale_float(draft: Draft) -> str:
    """Multiply a float attribute by 10."""
    return _scale_float(draft, 10.0)


def scale_float_slightly(draft: Draft) -> str:
    """Multiply a float attribute by 1.1."""
    return _scale_float(draft, 1.1)


def _scale_float(draft: Draft, factor: float) -> str:
    attributes = _find_attributes(draft, AttributeProto.FLOAT)
    if not attributes:
        return ""
    node, attribute = draft.rng.choice(attributes)
    old = attribute.f
    attribute.f = old * factor if old else 0.1
    if attribute.f == old:
        return ""
    return f"{format_node(node)}: {attribute.name} from {old:g} to {attribute.f:g}"


def change_integer(draft: Draft) -> str:
    """Change an integer attribute by one."""
    attributes = _find_attributes(draft, AttributeProto.INT)
    if not attributes:
        return ""
    node, attribute = draft.rng.choice(attributes)
    old = attribute.i
    attribute.i = old + (1 if old == 0 else draft.rng.choice((-1, 1)))
    return f"{format_node(node)}: {attribute.name} from {old} to {attribute.i}"


def change_list_item(draft: Draft) -> str:
    """Change one integer of a list, such as pads, strides or axes, by one."""
    attributes = [pair for pair in _find_attributes(draft, AttributeProto.INTS) if pair[1].ints]
    if not attributes:
        return ""
    node, attribute = draft.rng.choice(attributes)
    old = list(attribute.ints)
    index = draft.rng.randrange(len(old))
    attribute.ints[index] += 1 if old[index] == 0 else draft.rng.choice((-1, 1))
    return f"{format_node(node)}: {attribute.name} from {old} to {list(attribute.ints)}"


def swap_list_items(draft: Draft) -> str:
    """Exchange two different integers of an attribute: another permutation."""
    attributes = [
        p for p in _find_attributes(draft, AttributeProto.INTS) if len(set(p[1].ints)) > 1
    ]
    if not attributes:
        return ""
    node, attribute = draft.rng.choice(attributes)
    old = list(attribute.ints)
    pairs = [(i, j) for i in range(len(old)) for j in range(i) if old[i] != old[j]]
    i, j = draft.rng.choice(pairs)
    attribute.ints[i], attribute.ints[j] = old[j], old[i]
    return f"{format_node(node)}: {attribute.name} from {old} to {list(attribute.ints)}"


def replace_word(draft: Draft) -> str:
    """Replace a mode or a direction by another one."""
    texts = [p for p in _find_attributes(draft, AttributeProto.STRING) if p[1].s in _OTHER_WORDS]
    if not texts:
        return ""
    node, attribute = draft.rng.choice(texts)
    old = attribute.s
    attribute.s = _OTHER_WORDS[old]
    return f"{format_node(node)}: {attribute.name} from {old.decode()} to {attribute.s.decode()}"


def remove_attribute(draft: Draft) -> str:
    """Remove an attribute, which leaves its default."""
    attributes = [
        (node, index)
        for node in iter_nodes(draft.model)
        if node.op_type != "Constant"
        for index in range(len(node.attribute))
    ]
    if not attributes:
        return ""
    node, index = draft.rng.choice(attributes)
    name = node.attribute[index].name
    del node.attribute[index]
    return f"{format_node(node)}: {name} removed"


ATTRIBUTES = (
    scale_float,
    scale_float_slightly,
    change_integer,
    change_list_item,
    swap_list_items,
    replace_word,
    remove_attribute,
)
