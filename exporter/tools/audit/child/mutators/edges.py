"""Mutators of where values go: another value read, inputs swapped, one dropped, outputs crossed.

In: a `Draft`. Out: the draft with one edge changed, and the change in one line; an empty line
where there was no place for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnx import NodeProto, helper

from exporter.runtimes.graph_walk import iter_nodes
from exporter.tools.audit.child.mutators.attributes import format_node
from exporter.tools.audit.child.mutators.draft import Draft

#: The order of their inputs makes no difference.
_COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal"})


def rewired(draft: Draft) -> str:
    """One input of a node read from another value of the same type and shape."""
    places = list(_rewirings(draft))
    if not places:
        return ""
    node, index, others = draft.rng.choice(places)
    old, new = node.input[index], draft.rng.choice(others)
    node.input[index] = new
    return f"{format_node(node)}: input {index} from {old} to {new}"


def _rewirings(draft: Draft) -> Iterator[tuple[NodeProto, int, list[str]]]:
    """Every input of the main graph with the values that could stand in its place."""
    graph = draft.model.graph
    known = [item.name for item in (*graph.input, *graph.initializer)]
    for node in graph.node:
        for index, name in enumerate(node.input):
            kind = draft.types.get(name)
            others = [o for o in known if o != name and kind and draft.types.get(o) == kind]
            if others:
                yield node, index, others
        known += [name for name in node.output if name]


def inputs_swapped(draft: Draft) -> str:
    """Two inputs of a node that tells them apart, each in the other's place."""
    places = [
        (node, i, j)
        for node in iter_nodes(draft.model)
        if node.op_type not in _COMMUTATIVE
        for i in range(len(node.input))
        for j in range(i)
        if node.input[i] != node.input[j] and _are_alike(draft, node.input[i], node.input[j])
    ]
    if not places:
        return ""
    node, i, j = draft.rng.choice(places)
    node.input[i], node.input[j] = node.input[j], node.input[i]
    return f"{format_node(node)}: inputs {j} and {i} swapped"


def _are_alike(draft: Draft, one: str, other: str) -> bool:
    """Of one element type; of the same, where a shape is not known."""
    first, second = draft.types.get(one), draft.types.get(other)
    return bool(one and other) and (not first or not second or first[0] == second[0])


def input_dropped(draft: Draft) -> str:
    """The last input of a node gone, such as a bias."""
    nodes = [node for node in iter_nodes(draft.model) if len(node.input) > 1]
    if not nodes:
        return ""
    node = draft.rng.choice(nodes)
    name = node.input[-1]
    del node.input[-1]
    return f"{format_node(node)}: its last input {name} dropped"


def weights_swapped(draft: Draft) -> str:
    """Two weights of the same type and shape, each read where the other should be."""
    names = [item.name for item in draft.model.graph.initializer if len(item.dims)]
    pairs = [
        (one, other)
        for i, one in enumerate(names)
        for other in names[:i]
        if draft.types.get(one) == draft.types.get(other)
    ]
    if not pairs:
        return ""
    one, other = draft.rng.choice(pairs)
    crossed = {one: other, other: one}
    for node in draft.model.graph.node:
        node.input[:] = [crossed.get(name, name) for name in node.input]
    return f"{one} and {other} each in the other's place"


def output_replaced(draft: Draft) -> str:
    """An output of the graph that gives another value of the same type and shape."""
    graph = draft.model.graph
    inside = [name for node in graph.node for name in node.output]
    values = [item.name for item in graph.input] + inside
    ends = {item.name for item in graph.output}
    pairs = [
        (end, other)
        for end in sorted(ends.intersection(inside))
        for other in values
        if other != end and draft.types.get(end) and draft.types[end] == draft.types.get(other)
    ]
    if not pairs:
        return ""
    end, other = draft.rng.choice(pairs)
    hidden = f"{end}_before"
    for node in graph.node:
        node.input[:] = [hidden if name == end else name for name in node.input]
        node.output[:] = [hidden if name == end else name for name in node.output]
    source = hidden if other == end else other
    graph.node.append(helper.make_node("Identity", [source], [end]))
    return f"output {end} gives {other}"


def outputs_crossed(draft: Draft) -> str:
    """Two outputs of the graph, each under the other's name."""
    graph = draft.model.graph
    made = {name for node in graph.node for name in node.output}
    names = [item.name for item in graph.output if item.name in made]
    pairs = [(one, other) for i, one in enumerate(names) for other in names[:i]]
    if not pairs:
        return ""
    one, other = draft.rng.choice(pairs)
    crossed = {one: other, other: one}
    for node in graph.node:
        node.input[:] = [crossed.get(name, name) for name in node.input]
        node.output[:] = [crossed.get(name, name) for name in node.output]
    return f"outputs {one} and {other} each under the other's name"


EDGES = (rewired, inputs_swapped, input_dropped, weights_swapped, output_replaced, outputs_crossed)
