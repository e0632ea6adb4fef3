"""The module of each node: the place in the model that the node was made from.

Files of dynamo contain the classes of the modules, as the metadata `namespace` of each node. Files
of TorchScript contain only the names of the modules, in the names of the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from onnx import GraphProto, ModelProto, NodeProto

from exporter.core.text import join_lines
from exporter.runtimes.graph_walk import iter_model_graphs

_NAMESPACE = "namespace"
_UNKNOWN = "no module"


def format_scopes(model: ModelProto) -> str:
    """Return one line for consecutive nodes of one module, in the order of the graph."""
    return "".join(f"{line}\n" for graph in iter_model_graphs(model) for line in _list_lines(graph))


def _list_lines(graph: GraphProto) -> Iterator[str]:
    for scope, nodes in groupby(graph.node, _find_scope):
        operators = ", ".join(join_lines(node.op_type) for node in nodes)
        yield f"{join_lines(scope) or _UNKNOWN}: {operators}"


def _find_scope(node: NodeProto) -> str:
    """Return the scope of a node, "" if the file does not contain it."""
    for entry in node.metadata_props:
        if entry.key == _NAMESPACE:
            return _format_namespace(entry.value)
    # `/features/features.0/Conv`; the last part is the operator.
    path = node.name.rpartition("/")[0].strip("/")
    return path if node.name.startswith("/") else ""


def _format_namespace(text: str) -> str:
    """Return `Net/Linear[head]` for `: net.Net/head: torch.nn.modules.linear.Linear/linear: ...`.

    The last part is the operator.
    """
    parts = text.split("/")[:-1]
    named = (part.partition(": ") for part in parts)
    scopes = ((name, kind.rpartition(".")[2]) for name, _, kind in named)
    return "/".join(f"{kind}[{name}]" if name else kind for name, kind in scopes)
