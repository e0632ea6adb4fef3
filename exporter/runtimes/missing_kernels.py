"""A kernel that ONNX Runtime lacks, in plain words: the operator, in which dtypes, on what.

In: the message with which it refuses a file, and the file. Out: the sentence, or nothing where the
message speaks of something else.

ONNX Runtime names the operator and the node, and not the dtypes, for want of which it mostly is. An
operator of ONNX's own without a kernel is taken apart into others first: then it names one of
these, of which the file knows nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto, defs

from exporter.runtimes.dtypes import dtype_name

_MISSING = re.compile(
    r"(?:Could not find an implementation|Failed to find kernel) for (?:the node )?"
    r"(?:(?P<before>[^\s:]*):)?(?P<operator>\w+)\((?P<since>\d+)\)"
    r"(?:.*?(?:name |node:)'(?P<after>[^']*)')?"
)
Types = dict[str, TypeProto]


def missing_kernel(text: str, path: Path, provider: str) -> str:
    """The sentence; empty where no kernel is missing.

    Args:
        text: What ONNX Runtime says.
        path: The file.
        provider: The execution provider that was asked for.
    """
    found = _MISSING.search(text)
    if found is None:
        return ""
    operator, name = found["operator"], found["before"] or found["after"] or ""
    told = f"{provider} has no kernel for {operator}"
    since = f"as of opset {found['since']}"
    which = f"({since}, node '{name}')" if name else f"({since})"
    try:
        file = _File.read(path)
        if node := file.node(operator, name):
            return f"{told} in {file.dtypes(node)} {which}"
        if whole := file.made_of(operator):
            return f"{told} ({since}), of which it makes {whole.op_type} in {file.dtypes(whole)}"
    except (OSError, DecodeError, ValueError, RuntimeError):
        pass  # a file that cannot be looked into: what is said without it is true too
    return f"{told} {which}"


@dataclass(frozen=True, slots=True)
class _File:
    """The nodes of a file and the types of its values, as far as ONNX infers them."""

    nodes: tuple[NodeProto, ...]
    types: Types
    opset: int

    @classmethod
    def read(cls, path: Path) -> _File:
        """Reads it, without weights that lie outside."""
        model = onnx.load(path, load_external_data=False)
        graphs = tuple(_graphs(onnx.shape_inference.infer_shapes(model).graph))
        return cls(
            tuple(node for graph in graphs for node in graph.node),
            {value.name: value.type for graph in graphs for value in _values(graph)},
            _opset(model),
        )

    def node(self, operator: str, name: str) -> NodeProto | None:
        """The node of this name; without a name, the only one of the operator."""
        found = [n for n in self.nodes if n.op_type == operator and n.name == name]
        return found[0] if (name and found) or len(found) == 1 else None

    def made_of(self, operator: str) -> NodeProto | None:
        """The first node of an operator that ONNX defines by `operator` among others."""
        return next((node for node in self.nodes if operator in self._parts(node)), None)

    def _parts(self, node: NodeProto) -> set[str]:
        if node.domain not in ("", "ai.onnx") or not defs.has(node.op_type, self.opset, ""):
            return set()
        schema: Any = defs.get_schema(node.op_type, self.opset, "")
        body = FunctionProto()
        if schema.has_function:
            body.CopyFrom(schema.function_body)
        elif schema.has_context_dependent_function:
            types = [self.types.get(name, TypeProto()).SerializeToString() for name in node.input]
            body.ParseFromString(
                schema.get_context_dependent_function(node.SerializeToString(), types)
            )
        return {part.op_type for part in body.node}

    def dtypes(self, node: NodeProto) -> str:
        """The dtypes of what it reads, each once: `float64`, `bool and bfloat16`."""
        known = (self.types[name] for name in node.input if name in self.types)
        names = (dtype_name(kind.tensor_type.elem_type) for kind in known)
        return " and ".join(dict.fromkeys(names)) or "a dtype that the file does not say"


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph and those inside its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _graphs(inner) if inner.node else ()


def _values(graph: GraphProto) -> Iterator[ValueInfoProto]:
    yield from (*graph.input, *graph.value_info, *graph.output)
    for stored in graph.initializer:
        yield onnx.helper.make_tensor_value_info(stored.name, stored.data_type, stored.dims)


def _opset(model: ModelProto) -> int:
    return next((i.version for i in model.opset_import if i.domain in ("", "ai.onnx")), 1)
