"""Mutators of what nodes do: another operator with the same inputs.

In: a `Draft`. Out: the draft with one node's operator replaced, and the change in one line; an
empty line where there was no place for it.
"""

from __future__ import annotations

from onnx import NodeProto

from exporter.runtimes.graph_walk import iter_nodes, normalize_domain
from exporter.tools.audit.child.mutators.attributes import format_node
from exporter.tools.audit.child.mutators.draft import Draft

#: Operators that take and give the same kinds of tensors. Attributes that the other does not have
#: are dropped.
_OTHERS: dict[str, tuple[str, ...]] = {
    "Add": ("Sub", "Mul"),
    "Sub": ("Add",),
    "Mul": ("Div", "Add"),
    "Div": ("Mul",),
    "Max": ("Min",),
    "Min": ("Max",),
    "Pow": ("Mul",),
    "And": ("Or",),
    "Or": ("And",),
    "Equal": ("Less", "Greater"),
    "Less": ("Greater", "Equal"),
    "Greater": ("Less",),
    "LessOrEqual": ("GreaterOrEqual", "Less"),
    "GreaterOrEqual": ("LessOrEqual", "Greater"),
    "Relu": ("Identity", "LeakyRelu", "Abs"),
    "LeakyRelu": ("Relu",),
    "Sigmoid": ("HardSigmoid", "Tanh"),
    "HardSigmoid": ("Sigmoid",),
    "Tanh": ("Sigmoid", "Identity"),
    "Erf": ("Tanh",),
    "Gelu": ("Relu",),
    "HardSwish": ("Relu",),
    "Exp": ("Identity",),
    "Log": ("Identity",),
    "Sqrt": ("Identity",),
    "Abs": ("Identity", "Neg"),
    "Neg": ("Identity",),
    "Reciprocal": ("Identity",),
    "Floor": ("Ceil",),
    "Ceil": ("Floor",),
    "Sin": ("Cos",),
    "Cos": ("Sin",),
    "Not": ("Identity",),
    "Softmax": ("LogSoftmax", "Identity"),
    "LogSoftmax": ("Softmax",),
    "MaxPool": ("AveragePool",),
    "AveragePool": ("MaxPool",),
    "GlobalAveragePool": ("GlobalMaxPool",),
    "GlobalMaxPool": ("GlobalAveragePool",),
    "ReduceMean": ("ReduceSum", "ReduceMax"),
    "ReduceSum": ("ReduceMean",),
    "ReduceMax": ("ReduceMean", "ReduceMin"),
    "ReduceMin": ("ReduceMax",),
    "ArgMax": ("ArgMin",),
    "ArgMin": ("ArgMax",),
}
#: What both operators of a pool pair understand.
_POOL = ("auto_pad", "ceil_mode", "kernel_shape", "pads", "strides", "dilations")
#: Attributes of one operator that the operators above do not all have.
_OWN = {
    "Identity": (),
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "AveragePool": _POOL[:-1],
    "MaxPool": _POOL,
}


def replaced(draft: Draft) -> str:
    """One node's operator replaced by another of the same inputs."""
    nodes = [
        node
        for node in iter_nodes(draft.model)
        if node.op_type in _OTHERS and not normalize_domain(node.domain)
    ]
    if not nodes:
        return ""
    # By operator first: a hundred convolutions must not hide the one softmax.
    operator = draft.rng.choice(sorted({node.op_type for node in nodes}))
    node = draft.rng.choice([node for node in nodes if node.op_type == operator])
    other = draft.rng.choice(_OTHERS[operator])
    line = f"{format_node(node)}: {other} in its place"
    _become(node, other)
    return line


def bypassed(draft: Draft) -> str:
    """A node replaced by its own input, where that has the same type and shape."""
    places = [
        (node, name)
        for node in draft.model.graph.node
        for name in dict.fromkeys(node.input)
        if len(node.output) == 1
        and node.op_type != "Identity"
        and name in draft.types
        and draft.types[name] == draft.types.get(node.output[0])
    ]
    if not places:
        return ""
    node, name = draft.rng.choice(places)
    line = f"{format_node(node)} bypassed: its input {name} in its place"
    del node.input[:]
    node.input.append(name)
    del node.attribute[:]
    node.op_type, node.domain = "Identity", ""
    return line


def _become(node: NodeProto, other: str) -> None:
    node.op_type = other
    if other in _OWN:
        kept = [attribute for attribute in node.attribute if attribute.name in _OWN[other]]
        del node.attribute[:]
        node.attribute.extend(kept)


OPERATORS = (replaced, bypassed)
