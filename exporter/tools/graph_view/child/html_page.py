"""A page of HTML that shows the graph of a model and needs no other file.

Each value is a link to the node that computes it. Well-kept programs that draw graphs need a binary
(Graphviz) or a server (Netron). A list of nodes is readable for a thousand nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import jinja2
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    helper,
)

from exporter.core.text import join_lines, truncate
from exporter.report.pages.template_folder import find_packaged_templates
from exporter.runtimes.dtypes import format_dtype
from exporter.runtimes.graph_walk import iter_subgraphs, normalize_domain

_TEMPLATE = "graph.html.jinja"
_TEXT_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRow:
    """A value with a link to its producer."""

    name: str
    target: str
    """The anchor of the node, input or weight; "" if the file has none."""
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One node."""

    name: str
    operator: str
    attributes: tuple[str, ...]
    inputs: tuple[ValueRow, ...]
    outputs: tuple[ValueRow, ...]
    bodies: tuple[GraphRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRow:
    """A graph, or the body of a node or function."""

    name: str
    inputs: tuple[ValueRow, ...]
    weights: tuple[ValueRow, ...]
    nodes: tuple[NodeRow, ...]
    outputs: tuple[ValueRow, ...]


def render_page(model: ModelProto, file: str) -> str:
    """Return the page of one file."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(find_packaged_templates()),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    imports = [
        (normalize_domain(each.domain) or "ai.onnx", each.version) for each in model.opset_import
    ]
    anchors = _Anchors()
    return environment.get_template(_TEMPLATE).render(
        file=join_lines(file),
        imports=[_shorten(f"{domain} {version}") for domain, version in imports],
        ir_version=model.ir_version,
        graph=_build_graph(model.graph, anchors),
        functions=[
            GraphRow(
                name=_shorten(f"{function.domain}::{function.name}"),
                inputs=tuple(anchors.add(name) for name in function.input),
                weights=(),
                nodes=tuple(_build_nodes(function.node, anchors)),
                outputs=tuple(anchors.find(name) for name in function.output),
            )
            for function in model.functions
        ],
    )


@dataclass(slots=True)
class _Anchors:
    """The anchors of the values: numbers, because a name may contain any character."""

    targets: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def add(self, name: str, type: str = "") -> ValueRow:
        """Return a new value with its own anchor."""
        self.count += 1
        self.targets[name] = f"v{self.count}"
        return ValueRow(name=_shorten(name), target=self.targets[name], type=_shorten(type))

    def find(self, name: str, type: str = "") -> ValueRow:
        """Return a value with a link to its producer."""
        return ValueRow(name=_shorten(name), target=self.targets.get(name, ""), type=_shorten(type))


def _build_graph(graph: GraphProto, anchors: _Anchors) -> GraphRow:
    # The values of a body are not visible outside it.
    inner = _Anchors(targets=dict(anchors.targets), count=anchors.count)
    inputs = tuple(inner.add(item.name, _format_type(item.type)) for item in graph.input)
    weights = tuple(inner.add(item.name, _format_tensor(item)) for item in graph.initializer)
    nodes = tuple(_build_nodes(graph.node, inner))
    outputs = tuple(inner.find(item.name, _format_type(item.type)) for item in graph.output)
    anchors.count = inner.count
    return GraphRow(
        name=_shorten(graph.name), inputs=inputs, weights=weights, nodes=nodes, outputs=outputs
    )


def _build_nodes(nodes: Sequence[NodeProto], anchors: _Anchors) -> Iterator[NodeRow]:
    for node in nodes:
        domain = normalize_domain(node.domain)
        inputs = tuple(anchors.find(name) for name in node.input)
        bodies = tuple(_build_graph(body, anchors) for body in iter_subgraphs(node))
        yield NodeRow(
            name=_shorten(node.name),
            operator=_shorten(f"{domain}::{node.op_type}" if domain else node.op_type),
            attributes=tuple(_format_attribute(each) for each in node.attribute),
            inputs=inputs,
            outputs=tuple(anchors.add(name) for name in node.output),
            bodies=bodies,
        )


def _format_attribute(attribute: AttributeProto) -> str:
    if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        return _shorten(f"{attribute.name} = (below)")
    if attribute.type == AttributeProto.TENSOR:
        return _shorten(f"{attribute.name} = {_format_tensor(attribute.t)}")
    if attribute.ref_attr_name:
        return _shorten(f"{attribute.name} = @{attribute.ref_attr_name}")
    return _shorten(f"{attribute.name} = {helper.get_attribute_value(attribute)}")


def _format_tensor(tensor: TensorProto) -> str:
    summary = [each.value for each in tensor.external_data if each.key == "left out"]
    files = [each.value for each in tensor.external_data if each.key == "location"]
    shape = ", ".join(map(str, tensor.dims))
    return " ".join(
        [
            f"{format_dtype(tensor.data_type)}[{shape}]",
            *(summary or [f"in {name}" for name in files]),
        ]
    )


def _format_type(kind: TypeProto) -> str:
    match kind.WhichOneof("value"):
        case "tensor_type":
            tensor = kind.tensor_type
            dims = (
                str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"
                for dim in tensor.shape.dim
            )
            shape = f"[{', '.join(dims)}]" if tensor.HasField("shape") else ""
            return f"{format_dtype(tensor.elem_type)}{shape}"
        case "sequence_type":
            return f"sequence of {_format_type(kind.sequence_type.elem_type)}"
        case "optional_type":
            return f"optional {_format_type(kind.optional_type.elem_type)}"
        case other:
            return other or ""


def _shorten(text: str) -> str:
    return truncate(join_lines(text), _TEXT_LENGTH)
