"""Shapes of a node's inputs, compared with the shapes that ONNX documents.

ONNX has no formal shapes of inputs. The descriptions contain them for operators such as `Attention`
and `RotaryEmbedding`: "3D tensor with shape `(batch_size, sequence_length, hidden_size)`". An
exporter may write other shapes that one runtime broadcasts and another one rejects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from pathlib import Path

import onnx

from exporter.runtimes import Session
from exporter.runtimes.session import Array
from exporter.worker.diagnose.runtime_values import FileGraph, RuntimeValues

#: `(batch_size, sequence_length, head_size / 2)`: sizes between parentheses or brackets.
_SHAPE = re.compile(r"[(\[]([\w */+-]+(?:, ?[\w */+-]+)+)[)\]]")
_NAME = re.compile(r"[A-Za-z_]\w*")
#: A description with this word allows other shapes than the documented one.
_FREE = "broadcast"
#: Combinations of documented shapes that are tried.
_COMBINATIONS = 256

_Shape = tuple[int, ...]
_Documented = tuple[str, ...]


def find_violation_in_file(
    path: Path,
    value: str,
    opset: int,
    inputs: Mapping[str, Array],
    load: Callable[[Path], Session],
) -> str:
    """Return the documented shape that the node of a value violates, or "".

    Args:
        path: The file.
        value: An output of the node.
        opset: The opset of the file.
        inputs: The inputs of the sample.
        load: A runtime that accepts the node.
    """
    graph = FileGraph(path)
    producer = graph.find_producer(value)
    if producer is None:
        return ""
    node = graph.nodes[producer]
    if not any(_list_documented(node, opset)):
        return ""
    computed = RuntimeValues("shapes", path, inputs, load).compute(
        graph.list_computed_inputs(producer)
    )
    arrays = {**inputs, **computed}
    shapes = {name: _read_shape(arrays[name]) for name in node.input if name in arrays}
    return find_violation(node, opset, {**graph.weight_shapes, **shapes})


def find_violation(node: onnx.NodeProto, opset: int, shapes: Mapping[str, _Shape | None]) -> str:
    """Return the documented shape that the inputs of a node violate, or "".

    Args:
        node: The node.
        opset: The opset of the node's domain.
        shapes: The shapes of values by name; None for a value that is no tensor.
    """
    known: list[tuple[str, _Shape, list[_Documented]]] = []
    for name, (formal, documented) in zip(node.input, _list_documented(node, opset), strict=False):
        shape = shapes.get(name)
        if shape is not None:
            fitting = [each for each in documented if len(each) == len(shape)]
            known += [(formal, shape, fitting)] if fitting else []
    choices = product(*(documented for _, _, documented in known))
    conflict = ""
    for choice in islice(choices, _COMBINATIONS):
        problem = _find_conflict(known, choice)
        if not problem:
            return ""
        conflict = conflict or problem
    return f"{node.op_type}: {conflict}" if conflict else ""


def _find_conflict(
    known: Sequence[tuple[str, _Shape, list[_Documented]]], choice: Sequence[_Documented]
) -> str:
    """Return the first size that has two values, or ""."""
    sizes: dict[str, tuple[int, str]] = {}
    for (formal, shape, _), documented in zip(known, choice, strict=True):
        for name, size in zip(documented, shape, strict=True):
            if not _NAME.fullmatch(name):
                continue  # a number or an expression
            first, other = sizes.setdefault(name, (size, formal))
            if first != size:
                return (
                    f"ONNX documents `{formal}` as ({', '.join(documented)}), and {name} is "
                    f"{first} in `{other}`; the file has {list(shape)}"
                )
    return ""


def _list_documented(node: onnx.NodeProto, opset: int) -> Iterator[tuple[str, list[_Documented]]]:
    """Yield the name of each formal input with the shapes in its description."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:  # a custom operator
        return
    for item in schema.inputs:
        text = item.description
        texts = [] if _FREE in text or "shape" not in text.lower() else _SHAPE.findall(text)
        yield item.name, [tuple(size.strip() for size in each.split(",")) for each in texts]


def _read_shape(value: object) -> _Shape | None:
    shape = getattr(value, "shape", None)
    return tuple(shape) if shape is not None else None
