"""Files that ONNX Runtime does not load: a kernel is missing, or the format is newer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import FunctionProto, NodeProto, TypeProto, defs

from exporter.runtimes.graph_walk import format_dtype, iter_graphs, normalize_domain

_MISSING = re.compile(
    r"(?:Could not find an implementation|Failed to find kernel) for (?:the node )?"
    r"(?:(?P<before>[^\s:]*):)?(?P<operator>\w+)\((?P<since>\d+)\)"
    r"(?:.*?(?:name |node:)'(?P<after>[^']*)')?"
)

_NEWER_FORMAT = re.compile(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)")
_NEWER_OPSET = re.compile(
    r"Opset (\d+) is under development.*support for domain ai\.onnx is till opset (\d+)", re.DOTALL
)


def describe_load_failure(text: str, path: Path, provider: str) -> str:
    """Return a sentence about a message of ONNX Runtime, or "" if the reason is another one."""
    return _describe_missing_kernel(text, path, provider) or _describe_newer_format(text)


def _describe_missing_kernel(text: str, path: Path, provider: str) -> str:
    """Return a sentence, or "" if no kernel is missing.

    ONNX Runtime names the operator and the node, but not the dtypes, which are usually the cause.
    It first decomposes an operator of ONNX without a kernel. Then the message names an operator
    that is not in the file.
    """
    match = _MISSING.search(text)
    if match is None:
        return ""
    operator, name = match["operator"], match["before"] or match["after"] or ""
    problem = f"{provider} has no kernel for {operator}"
    since = f"as of opset {match['since']}"
    detail = f"({since}, node '{name}')" if name else f"({since})"
    try:
        graph = _TypedGraph.read(path)
        if node := graph.find_node(operator, name):
            return f"{problem} in {graph.format_dtypes(node)} {detail}"
        if node := graph.find_composite(operator):
            dtypes = graph.format_dtypes(node)
            return f"{problem} ({since}), a part of {node.op_type} in {dtypes}"
    except (OSError, DecodeError, ValueError, RuntimeError):
        pass  # without a readable file, the sentence has no dtypes
    return f"{problem} {detail}"


def _describe_newer_format(message: str) -> str:
    """Return a sentence if ONNX Runtime is older than the format of the file, or else ""."""
    if match := _NEWER_FORMAT.search(message):
        actual, highest = match.groups()
        fix = f"set `ir_version = {highest}`, if the opset allows it"
        return f"the file has IR version {actual}, and this release loads up to {highest}; {fix}"
    if match := _NEWER_OPSET.search(message):
        actual, highest = match.groups()
        return f"the file has opset {actual}, and this release supports up to {highest}"
    return ""


@dataclass(frozen=True, slots=True)
class _TypedGraph:
    """The nodes of a file, and the types of its values if ONNX infers them."""

    nodes: tuple[NodeProto, ...]
    types: Mapping[str, TypeProto]
    opset: int

    @classmethod
    def read(cls, path: Path) -> _TypedGraph:
        """Read the file without external weights, and infer types."""
        proto = onnx.load(path, load_external_data=False)
        nodes, types = [], {}
        for graph in iter_graphs(onnx.shape_inference.infer_shapes(proto).graph):
            nodes += graph.node
            for value in (*graph.input, *graph.value_info, *graph.output):
                types[value.name] = value.type
            for tensor in graph.initializer:
                info = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
                types[tensor.name] = info
        imports = (i.version for i in proto.opset_import if not normalize_domain(i.domain))
        return cls(tuple(nodes), types, next(imports, 1))

    def find_node(self, operator: str, name: str) -> NodeProto | None:
        """Return the node with this name; without a name, the only node of the operator."""
        nodes = [n for n in self.nodes if n.op_type == operator and n.name == name]
        return nodes[0] if (name and nodes) or len(nodes) == 1 else None

    def find_composite(self, operator: str) -> NodeProto | None:
        """Return the first node that ONNX decomposes into `operator` and others."""
        return next((node for node in self.nodes if operator in self._decompose(node)), None)

    def _decompose(self, node: NodeProto) -> set[str]:
        if normalize_domain(node.domain) or not defs.has(node.op_type, self.opset, ""):
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

    def format_dtypes(self, node: NodeProto) -> str:
        """Return the dtypes of the node's inputs, each once: `bool and bfloat16`."""
        types = (self.types[name] for name in node.input if name in self.types)
        names = (format_dtype(kind.tensor_type.elem_type) for kind in types)
        return " and ".join(dict.fromkeys(names)) or "an unknown dtype"
