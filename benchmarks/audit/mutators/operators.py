"""Mutators of nodes: another operator with the same inputs."""

from __future__ import annotations

from benchmarks.audit.mutators.attributes import format_node
from benchmarks.audit.mutators.draft import Draft
from exporter.runtimes.graph_walk import iter_nodes, normalize_domain

#: Operators with the same kinds of inputs and outputs. Attributes that the other operator does not
#: have are removed.
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
#: Attributes of both pooling operators.
_POOL = ("auto_pad", "ceil_mode", "kernel_shape", "pads", "strides", "dilations")
#: The attributes of an operator, if it lacks some of the attributes that it replaces.
_ATTRIBUTES = {
    "Identity": (),
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "AveragePool": _POOL[:-1],
    "MaxPool": _POOL,
}


def replace_operator(draft: Draft) -> str:
    """Replace the operator of a node by another one with the same inputs."""
    nodes = [
        node
        for node in iter_nodes(draft.model)
        if node.op_type in _OTHERS and not normalize_domain(node.domain)
    ]
    if not nodes:
        return ""
    # Draw the operator first: a hundred convolutions must not hide one softmax.
    operator = draft.rng.choice(sorted({node.op_type for node in nodes}))
    node = draft.rng.choice([node for node in nodes if node.op_type == operator])
    other = draft.rng.choice(_OTHERS[operator])
    line = f"{format_node(node)}: {other} in its place"
    node.op_type = other
    if other in _ATTRIBUTES:
        remaining = [item for item in node.attribute if item.name in _ATTRIBUTES[other]]
        del node.attribute[:]
        node.attribute.extend(remaining)
    return line


def bypass_node(draft: Draft) -> str:
    """Replace a node by its input, if that has the same type and shape."""
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


OPERATORS = (replace_operator, bypass_node)
