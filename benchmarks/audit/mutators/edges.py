"""Mutators of edges: another value as input, exchanged inputs or outputs, a dropped input."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import NodeProto, helper

from benchmarks.audit.mutators.attributes import format_node
from benchmarks.audit.mutators.draft import Draft
from exporter.runtimes.graph_walk import iter_nodes

#: Operators with inputs in any order.
_COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal"})


def rewire_input(draft: Draft) -> str:
    """Connect an input of a node to another value of the same type and shape."""
    places = list(_list_rewirings(draft))
    if not places:
        return ""
    node, index, others = draft.rng.choice(places)
    old, new = node.input[index], draft.rng.choice(others)
    node.input[index] = new
    return f"{format_node(node)}: input {index} from {old} to {new}"


def _list_rewirings(draft: Draft) -> Iterator[tuple[NodeProto, int, list[str]]]:
    """Yield each input of a node in the main graph with the values that can replace it."""
    graph = draft.model.graph
    names = [item.name for item in (*graph.input, *graph.initializer)]
    for node in graph.node:
        for index, name in enumerate(node.input):
            kind = draft.types.get(name)
            others = [o for o in names if o != name and kind and draft.types.get(o) == kind]
            if others:
                yield node, index, others
        names += [name for name in node.output if name]


def swap_node_inputs(draft: Draft) -> str:
    """Exchange two inputs of a node with an operator that is not commutative."""
    places = [
        (node, i, j)
        for node in iter_nodes(draft.model)
        if node.op_type not in _COMMUTATIVE
        for i in range(len(node.input))
        for j in range(i)
        if node.input[i] != node.input[j] and _are_compatible(draft, node.input[i], node.input[j])
    ]
    if not places:
        return ""
    node, i, j = draft.rng.choice(places)
    node.input[i], node.input[j] = node.input[j], node.input[i]
    return f"{format_node(node)}: inputs {j} and {i} swapped"


def _are_compatible(draft: Draft, one: str, other: str) -> bool:
    """Return True if the element types are equal or unknown."""
    first, second = draft.types.get(one), draft.types.get(other)
    return bool(one and other) and (not first or not second or first[0] == second[0])


def drop_last_input(draft: Draft) -> str:
    """Remove the last input of a node, such as a bias."""
    nodes = [node for node in iter_nodes(draft.model) if len(node.input) > 1]
    if not nodes:
        return ""
    node = draft.rng.choice(nodes)
    name = node.input[-1]
    del node.input[-1]
    return f"{format_node(node)}: its last input {name} dropped"


def swap_weights(draft: Draft) -> str:
    """Exchange two weights of the same type and shape."""
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
    swapped = {one: other, other: one}
    for node in draft.model.graph.node:
        node.input[:] = [swapped.get(name, name) for name in node.input]
    return f"{one} and {other} each in the other's place"


def replace_output(draft: Draft) -> str:
    """Connect an output of the graph to another value of the same type and shape."""
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


def swap_output_names(draft: Draft) -> str:
    """Exchange the names of two outputs of the graph."""
    graph = draft.model.graph
    computed = {name for node in graph.node for name in node.output}
    names = [item.name for item in graph.output if item.name in computed]
    pairs = [(one, other) for i, one in enumerate(names) for other in names[:i]]
    if not pairs:
        return ""
    one, other = draft.rng.choice(pairs)
    swapped = {one: other, other: one}
    for node in graph.node:
        node.input[:] = [swapped.get(name, name) for name in node.input]
        node.output[:] = [swapped.get(name, name) for name in node.output]
    return f"outputs {one} and {other} each under the other's name"


EDGES = (
    rewire_input,
    swap_node_inputs,
    drop_last_input,
    swap_weights,
    replace_output,
    swap_output_names,
)
