"""Walks over everything in a model: subgraphs and functions too, where checks forget to look.

In: a proto. Out: its graphs, nodes and tensors, and which names are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

#: A function by domain, name and overload.
FunctionKey = tuple[str, str, str]
Functions = Mapping[FunctionKey, FunctionProto]
#: ONNX's own operators go by both names.
DEFAULT_DOMAIN = ("", "ai.onnx")


def domain_of(name: str) -> str:
    """The domain, with one name for ONNX's own."""
    return "" if name in DEFAULT_DOMAIN else name


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The bodies of an `If`, `Loop` or `Scan`."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph and every graph inside it."""
    yield graph
    yield from _graphs_inside(graph.node)


def _graphs_inside(nodes: Iterable[NodeProto]) -> Iterator[GraphProto]:
    for node in nodes:
        for graph in subgraphs(node):
            yield from all_graphs(graph)


def model_graphs(model: ModelProto) -> Iterator[GraphProto]:
    """Every graph of the model, those inside functions too."""
    yield from all_graphs(model.graph)
    for function in model.functions:
        yield from _graphs_inside(function.node)


def model_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Every node of the model: of its graphs, and of its functions, each function once."""
    for graph in model_graphs(model):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def initializers(model: ModelProto) -> Iterator[TensorProto]:
    """Every stored tensor that nodes take as an input; of sparse ones, the values."""
    for graph in model_graphs(model):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield sparse.values


def all_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every stored tensor: initializers and attributes, sparse ones as values and indices."""
    for graph in model_graphs(model):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in model_nodes(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            sparse_tensors = list(attribute.sparse_tensors)
            if attribute.HasField("sparse_tensor"):
                sparse_tensors.append(attribute.sparse_tensor)
            for sparse in sparse_tensors:
                yield from (sparse.values, sparse.indices)


def functions_of(model: ModelProto) -> Functions:
    """The model's own functions by what a node calls them."""
    return {
        (domain_of(item.domain), item.name, getattr(item, "overload", "")): item
        for item in model.functions
    }


def needed_names(
    nodes: Sequence[NodeProto], outputs: Iterable[str], functions: Functions
) -> set[str]:
    """Every name that the outputs depend on; nodes stand in topological order."""
    needed = set(outputs)
    for node in reversed(nodes):
        if not needed.isdisjoint(name for name in node.output if name):
            needed.update(_names_into(node, functions))
    return needed


def _names_into(node: NodeProto, functions: Functions) -> set[str]:
    """What a node reads: its inputs, and what its subgraphs take from outside."""
    key = (domain_of(node.domain), node.op_type, getattr(node, "overload", ""))
    if function := functions.get(key):
        others = {name: item for name, item in functions.items() if name != key}
        inside = needed_names(function.node, function.output, others)
        # A call may leave out optional inputs at the end.
        pairs = zip(node.input, function.input, strict=False)
        names = {given for given, formal in pairs if formal in inside}
    else:
        names = set(node.input)
    for graph in subgraphs(node):
        names |= _names_from_outside(graph, functions)
    return names


def _names_from_outside(graph: GraphProto, functions: Functions) -> set[str]:
    needed = needed_names(graph.node, (item.name for item in graph.output), functions)
    own = {item.name for item in (*graph.input, *graph.initializer)}
    own.update(name for node in graph.node for name in node.output)
    own.update(item.values.name for item in graph.sparse_initializer)
    return needed - own
