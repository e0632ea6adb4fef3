"""The graph of a file as text, rendered in a child process, which may import onnx."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, numpy_helper, printer

from exporter.checks.model_file import UnreadableModel, read_model
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text import join_lines, join_names, pluralize, remove_controls
from exporter.runtimes.graph_walk import format_dtype, iter_model_graphs, iter_tensors

#: Elements of the largest tensor that is shown with its values.
_MOST_VALUES = 8
#: Operators that the header lists, the most frequent first.
_SHOWN_OPERATORS = 6


def format_graph(path: Path, scopes: bool) -> str:
    """Return the graph in ONNX's text form, or the module of each node.

    Raises:
        ExporterError: UNREADABLE if the file is not an ONNX file.
    """
    try:
        model = read_model(path)
    except UnreadableModel as error:
        message = f"{path.name}: cannot be shown: {error}"
        raise ExporterError(ExitCode.UNREADABLE, message) from error
    if scopes:
        return format_scopes(model)
    elide_weights(model)
    return format_model(model)


def format_model(model: ModelProto) -> str:
    """Return a header and ONNX's text form, without control characters."""
    text = "\n".join((*_list_header_lines(model), "", printer.to_text(model)))
    return remove_controls(text) + "\n"


def _list_header_lines(model: ModelProto) -> Iterator[str]:
    """Yield the versions, the signature and the most frequent operators, as comments."""
    graph = model.graph
    opsets = (f"{each.domain or 'ai.onnx'} {each.version}" for each in model.opset_import)
    yield f"# opsets: {', '.join(opsets)}; IR version {model.ir_version}"
    for title, values in (("input", graph.input), ("output", graph.output)):
        for value in values:
            yield f"# {title}: {join_lines(value.name)} {_format_type(value.type)}"
    counts = Counter(node.op_type for node in graph.node)
    names = [f"{count} {join_lines(name)}" for name, count in counts.most_common()]
    nodes, weights = pluralize(len(graph.node), "node"), pluralize(len(graph.initializer), "weight")
    yield (
        f"# {nodes}: {join_names(names, _SHOWN_OPERATORS)}; {weights}" if names else f"# {weights}"
    )


def _format_type(type: TypeProto) -> str:
    kind = type.WhichOneof("value")
    if kind != "tensor_type":
        return (kind or "of unknown type").removesuffix("_type")
    tensor = type.tensor_type
    if not tensor.HasField("shape"):
        return format_dtype(tensor.elem_type)
    dims = (
        str(dim.dim_value) if dim.HasField("dim_value") else join_lines(dim.dim_param) or "?"
        for dim in tensor.shape.dim
    )
    return f"{format_dtype(tensor.elem_type)} [{', '.join(dims)}]"


def elide_weights(model: ModelProto) -> None:
    """Replace the values of large tensors in place by their number and range.

    ONNX's text form has no notation for this, so the summary is written as external data.
    """
    for tensor in iter_tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL and math.prod(tensor.dims) > _MOST_VALUES:
            summary = _summarize_values(tensor)
            tensor.CopyFrom(
                TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            )
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="left out", value=summary)


def _summarize_values(tensor: TensorProto) -> str:
    count = f"{math.prod(tensor.dims)} values"
    try:
        values = np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, RuntimeError):
        return count
    if values.dtype.kind not in "fiub":
        return count
    return f"{count} from {values.min():.6g} to {values.max():.6g}"


_NAMESPACE = "namespace"
_UNKNOWN = "no module"


# Files of dynamo contain the classes of the modules, as the metadata `namespace` of each node.
# Files of TorchScript contain only the names of the modules, in the names of the nodes.
def format_scopes(model: ModelProto) -> str:
    """Return one line for consecutive nodes of one module, in the order of the graph."""
    lines = [
        f"{join_lines(scope) or _UNKNOWN}: {', '.join(join_lines(n.op_type) for n in nodes)}\n"
        for graph in iter_model_graphs(model)
        for scope, nodes in groupby(graph.node, _find_scope)
    ]
    return "".join(lines)


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
