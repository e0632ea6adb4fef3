"""A model in, a page of HTML out that needs nothing besides itself.

Every value leads to the node that makes it. What is well kept and draws graphs needs a binary of
its own (Graphviz) or a server (Netron); a list of nodes with links needs neither, and is readable
for a thousand nodes.
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
    ValueInfoProto,
    helper,
)

from exporter.checks.files.graph_walk import domain_of, subgraphs
from exporter.core.sanitize import one_line, truncate
from exporter.report.pages.template_folder import packaged_templates
from exporter.runtimes.dtypes import dtype_name

_TEMPLATE = "graph.html.jinja"
_LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRow:
    """A value by its name, and where it comes from."""

    name: str
    target: str
    """The anchor of what makes it; empty where nothing in the file does."""
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


def page(model: ModelProto, file: str) -> str:
    """The page of one file."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(packaged_templates()),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    imports = [(domain_of(each.domain) or "ai.onnx", each.version) for each in model.opset_import]
    anchors = _Anchors()
    return environment.get_template(_TEMPLATE).render(
        file=one_line(file),
        imports=[_shown(f"{domain} {version}") for domain, version in imports],
        ir_version=model.ir_version,
        graph=_graph(model.graph, anchors),
        functions=[
            GraphRow(
                name=_shown(f"{function.domain}::{function.name}"),
                inputs=tuple(anchors.make(name) for name in function.input),
                weights=(),
                nodes=tuple(_nodes(function.node, anchors)),
                outputs=tuple(anchors.find(name) for name in function.output),
            )
            for function in model.functions
        ],
    )


@dataclass(slots=True)
class _Anchors:
    """Numbers for the values that were made so far: names may hold anything."""

    known: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def make(self, name: str, type: str = "") -> ValueRow:
        """A value that comes into being here."""
        self.count += 1
        self.known[name] = f"v{self.count}"
        return ValueRow(name=_shown(name), target=self.known[name], type=type)

    def find(self, name: str, type: str = "") -> ValueRow:
        """A value that is used here."""
        return ValueRow(name=_shown(name), target=self.known.get(name, ""), type=type)


def _graph(graph: GraphProto, anchors: _Anchors) -> GraphRow:
    # What is made in a body is not seen outside it.
    inside = _Anchors(known=dict(anchors.known), count=anchors.count)
    inputs = tuple(inside.make(item.name, _type(item)) for item in graph.input)
    weights = tuple(inside.make(item.name, _tensor(item)) for item in graph.initializer)
    nodes = tuple(_nodes(graph.node, inside))
    outputs = tuple(inside.find(item.name, _type(item)) for item in graph.output)
    anchors.count = inside.count
    return GraphRow(
        name=_shown(graph.name), inputs=inputs, weights=weights, nodes=nodes, outputs=outputs
    )


def _nodes(nodes: Sequence[NodeProto], anchors: _Anchors) -> Iterator[NodeRow]:
    for node in nodes:
        domain = domain_of(node.domain)
        inputs = tuple(anchors.find(name) for name in node.input)
        bodies = tuple(_graph(body, anchors) for body in subgraphs(node))
        yield NodeRow(
            name=_shown(node.name),
            operator=_shown(f"{domain}::{node.op_type}" if domain else node.op_type),
            attributes=tuple(_attribute(each) for each in node.attribute),
            inputs=inputs,
            outputs=tuple(anchors.make(name) for name in node.output),
            bodies=bodies,
        )


def _attribute(attribute: AttributeProto) -> str:
    if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        return _shown(f"{attribute.name} = (below)")
    if attribute.type == AttributeProto.TENSOR:
        return _shown(f"{attribute.name} = {_tensor(attribute.t)}")
    if attribute.ref_attr_name:
        return _shown(f"{attribute.name} = @{attribute.ref_attr_name}")
    return _shown(f"{attribute.name} = {helper.get_attribute_value(attribute)}")


def _tensor(tensor: TensorProto) -> str:
    left_out = [each.value for each in tensor.external_data if each.key == "left out"]
    shape = ", ".join(map(str, tensor.dims))
    beside = [each.value for each in tensor.external_data if each.key == "location"]
    said = left_out or [f"in {name}" for name in beside]
    return " ".join([f"{dtype_name(tensor.data_type)}[{shape}]", *said])


def _type(value: ValueInfoProto) -> str:
    return _shown(_kind(value.type))


def _kind(kind: TypeProto) -> str:
    match kind.WhichOneof("value"):
        case "tensor_type":
            tensor = kind.tensor_type
            dims = (
                str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"
                for dim in tensor.shape.dim
            )
            shape = f"[{', '.join(dims)}]" if tensor.HasField("shape") else ""
            return f"{dtype_name(tensor.elem_type)}{shape}"
        case "sequence_type":
            return f"sequence of {_kind(kind.sequence_type.elem_type)}"
        case "optional_type":
            return f"optional {_kind(kind.optional_type.elem_type)}"
        case other:
            return other or ""


def _shown(text: str) -> str:
    return truncate(one_line(text), _LONGEST)
