"""Mutators of what nodes are told: a float, an integer, one of several integers, a word.

In: a `Draft`. Out: the draft with one attribute changed, and the change in one line; an empty line
where there was no place for it.
"""

from __future__ import annotations

from onnx import AttributeProto, NodeProto

from exporter.runtimes.graph_walk import iter_nodes
from exporter.tools.audit.child.mutators.draft import Draft

#: Words of the specification that mean something else in the same place.
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


def _places(draft: Draft, kind: int) -> list[tuple[NodeProto, AttributeProto]]:
    return [
        (node, attribute)
        for node in iter_nodes(draft.model)
        for attribute in node.attribute
        if attribute.type == kind and not attribute.ref_attr_name
    ]


def format_node(node: NodeProto) -> str:
    """A node as a line names it: by its operator and its first output."""
    return f"{node.op_type} -> {next((name for name in node.output if name), '?')}"


def number(draft: Draft) -> str:
    """A float attribute ten times as large."""
    return _number(draft, 10.0)


def number_slightly(draft: Draft) -> str:
    """A float attribute a tenth larger."""
    return _number(draft, 1.1)


def _number(draft: Draft, factor: float) -> str:
    places = _places(draft, AttributeProto.FLOAT)
    if not places:
        return ""
    node, attribute = draft.rng.choice(places)
    old = attribute.f
    attribute.f = old * factor if old else 0.1
    if attribute.f == old:
        return ""
    return f"{format_node(node)}: {attribute.name} from {old:g} to {attribute.f:g}"


def integer_attribute(draft: Draft) -> str:
    """An integer attribute off by one."""
    places = _places(draft, AttributeProto.INT)
    if not places:
        return ""
    node, attribute = draft.rng.choice(places)
    old = attribute.i
    attribute.i = old + (1 if old == 0 else draft.rng.choice((-1, 1)))
    return f"{format_node(node)}: {attribute.name} from {old} to {attribute.i}"


def one_of_integers(draft: Draft) -> str:
    """One of the integers of pads, strides, axes and the like off by one."""
    places = [place for place in _places(draft, AttributeProto.INTS) if place[1].ints]
    if not places:
        return ""
    node, attribute = draft.rng.choice(places)
    old = list(attribute.ints)
    index = draft.rng.randrange(len(old))
    attribute.ints[index] += 1 if old[index] == 0 else draft.rng.choice((-1, 1))
    return f"{format_node(node)}: {attribute.name} from {old} to {list(attribute.ints)}"


def two_integers_swapped(draft: Draft) -> str:
    """Two different integers of an attribute in each other's place: another permutation."""
    places = [p for p in _places(draft, AttributeProto.INTS) if len(set(p[1].ints)) > 1]
    if not places:
        return ""
    node, attribute = draft.rng.choice(places)
    old = list(attribute.ints)
    pairs = [(i, j) for i in range(len(old)) for j in range(i) if old[i] != old[j]]
    i, j = draft.rng.choice(pairs)
    attribute.ints[i], attribute.ints[j] = old[j], old[i]
    return f"{format_node(node)}: {attribute.name} from {old} to {list(attribute.ints)}"


def word(draft: Draft) -> str:
    """A mode or a direction replaced by another one."""
    texts = [p for p in _places(draft, AttributeProto.STRING) if p[1].s in _OTHER_WORDS]
    if not texts:
        return ""
    node, attribute = draft.rng.choice(texts)
    old = attribute.s
    attribute.s = _OTHER_WORDS[old]
    return f"{format_node(node)}: {attribute.name} from {old.decode()} to {attribute.s.decode()}"


def removed(draft: Draft) -> str:
    """An attribute gone, so that its default holds."""
    places = [
        (node, index)
        for node in iter_nodes(draft.model)
        if node.op_type != "Constant"
        for index in range(len(node.attribute))
    ]
    if not places:
        return ""
    node, index = draft.rng.choice(places)
    name = node.attribute[index].name
    del node.attribute[index]
    return f"{format_node(node)}: {name} removed"


ATTRIBUTES = (
    number,
    number_slightly,
    integer_attribute,
    one_of_integers,
    two_integers_swapped,
    word,
    removed,
)
