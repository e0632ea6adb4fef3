"""A walk over a `ModelProto`: its graphs, nodes and tensors, with subgraphs and functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

#: A function or operator by domain, name and overload.
OperatorKey = tuple[str, str, str]
Functions = Mapping[OperatorKey, FunctionProto]


def normalize_domain(name: str) -> str:
    """Return the domain, with "" for ONNX's own domain, which has two names."""
    return "" if name == "ai.onnx" else name


def get_operator_key(node: NodeProto) -> OperatorKey:
    return normalize_domain(node.domain), node.op_type, getattr(node, "overload", "")


def iter_subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the bodies of an `If`, `Loop` or `Scan`."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def iter_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for subgraph in iter_subgraphs(node):
            yield from iter_graphs(subgraph)


def iter_model_graphs(proto: ModelProto) -> Iterator[GraphProto]:
    """Yield every graph of the model, including those inside functions."""
    yield from iter_graphs(proto.graph)
    for function in proto.functions:
        for node in function.node:
            for subgraph in iter_subgraphs(node):
                yield from iter_graphs(subgraph)


def iter_nodes(proto: ModelProto) -> Iterator[NodeProto]:
    """Yield every node of all graphs and functions, each function once."""
    for graph in iter_model_graphs(proto):
        yield from graph.node
    for function in proto.functions:
        yield from function.node


def iter_initializers(proto: ModelProto) -> Iterator[TensorProto]:
    """Yield every initializer; of a sparse one, the values."""
    for graph in iter_model_graphs(proto):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield sparse.values


def iter_tensors(proto: ModelProto) -> Iterator[TensorProto]:
    """Yield every stored tensor of initializers and attributes; of a sparse one, both parts."""
    sparse_tensors = []
    for graph in iter_model_graphs(proto):
        yield from graph.initializer
        sparse_tensors += graph.sparse_initializer
    for node in iter_nodes(proto):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            sparse_tensors += attribute.sparse_tensors
            if attribute.HasField("sparse_tensor"):
                sparse_tensors.append(attribute.sparse_tensor)
    for sparse in sparse_tensors:
        yield from (sparse.values, sparse.indices)


def index_functions(proto: ModelProto) -> Functions:
    """Return the model's own functions by the key of a node that calls them."""
    return {
        (normalize_domain(item.domain), item.name, getattr(item, "overload", "")): item
        for item in proto.functions
    }


def find_needed_names(
    nodes: Sequence[NodeProto], outputs: Iterable[str], functions: Functions
) -> set[str]:
    """Return every name that the outputs depend on; nodes are in topological order."""
    needed = set(outputs)
    for node in reversed(nodes):
        if not needed.isdisjoint(name for name in node.output if name):
            needed.update(_find_read_names(node, functions))
    return needed


def _find_read_names(node: NodeProto, functions: Functions) -> set[str]:
    """Return the inputs of a node, and the outer names that its subgraphs read."""
    key = get_operator_key(node)
    if function := functions.get(key):
        others = {name: item for name, item in functions.items() if name != key}
        needed = find_needed_names(function.node, function.output, others)
        # A call may omit optional inputs at the end.
        pairs = zip(node.input, function.input, strict=False)
        names = {name for name, parameter in pairs if parameter in needed}
    else:
        names = set(node.input)
    for graph in iter_subgraphs(node):
        needed = find_needed_names(graph.node, (item.name for item in graph.output), functions)
        local = {item.name for item in (*graph.input, *graph.initializer)}
        local.update(name for inner in graph.node for name in inner.output)
        local.update(item.values.name for item in graph.sparse_initializer)
        names |= needed - local
    return names


def format_dtype(elem_type: int) -> str:
    """Return PyTorch's name of the dtype, or ONNX's in lower case if PyTorch has none."""
    try:
        name = str(TensorProto.DataType.Name(elem_type)).lower()
    except ValueError:
        return f"of unknown type {elem_type}"
    return {"float": "float32", "double": "float64"}.get(name, name)
