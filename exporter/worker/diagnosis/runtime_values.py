"""Values inside a file, computed by a runtime."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx

from exporter.checks.comparison.compare_arrays import compare_arrays
from exporter.checks.comparison.tolerance import Limit
from exporter.runtimes import LoadFailure, RunFailure, Session
from exporter.runtimes.session import Array, OnnxValue, list_items


class FileGraph:
    """The main graph of a file; nodes inside `Loop` and `If` belong to their node."""

    def __init__(self, path: Path) -> None:
        self._model = onnx.load(str(path), load_external_data=False)
        self.nodes = list(self._model.graph.node)
        self._producers = {
            name: index for index, node in enumerate(self.nodes) for name in node.output if name
        }
        self._inputs = [tuple(dict.fromkeys(_list_inputs(node))) for node in self.nodes]

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(output.name for output in self._model.graph.output)

    @property
    def values(self) -> tuple[str, ...]:
        """Every value that a node computes, in the order of the file."""
        return tuple(self._producers)

    @property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        return {item.name: tuple(item.dims) for item in self._model.graph.initializer}

    def find_producer(self, value: str) -> int | None:
        """Return the index of the node that computes a value; None for inputs and weights."""
        return self._producers.get(value)

    def list_computed_inputs(self, index: int) -> tuple[str, ...]:
        """Return the inputs of a node that another node computes."""
        return tuple(name for name in self._inputs[index] if name in self._producers)

    def find_ancestors(self, values: Iterable[str]) -> frozenset[int]:
        """Return every node that these values depend on."""
        ancestors: set[int] = set()
        queue = [self._producers[name] for name in values if name in self._producers]
        while queue:
            index = queue.pop()
            if index not in ancestors:
                ancestors.add(index)
                queue += [self._producers[name] for name in self.list_computed_inputs(index)]
        return frozenset(ancestors)

    def extract_part(self, values: Iterable[str]) -> onnx.ModelProto:
        """Return a model with these values as outputs and only the nodes and weights for them."""
        names = list(values)
        nodes = self.find_ancestors(names)
        used = set(names).union(*(self._inputs[index] for index in nodes))
        part = onnx.ModelProto()
        part.CopyFrom(self._model)
        graph = part.graph
        for field in (graph.node, graph.output, graph.value_info, graph.initializer):
            del field[:]
        graph.node.extend(self.nodes[index] for index in sorted(nodes))
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        graph.initializer.extend(
            item for item in self._model.graph.initializer if item.name in used
        )
        return part


def _list_inputs(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the inputs of a node and of all nodes in its subgraphs.

    The names of a subgraph's own values are included; they match no value of the main graph.
    """
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for subgraph in (attribute.g, *attribute.graphs):
            for inner in subgraph.node:
                yield from _list_inputs(inner)
            yield from (output.name for output in subgraph.output)


#: The number of values that one run computes.
BATCH_SIZE = 6


class GraphValues(Protocol):
    """The values of one side of a comparison."""

    @property
    def name(self) -> str:
        """The name in the record."""

    def has_value(self, value: str) -> bool:
        """Return True if the side may have the value."""

    def compute(self, names: Sequence[str]) -> Mapping[str, OnnxValue | None]:
        """Return the values by name; None for a value that cannot be computed."""


class RuntimeValues:
    """The values that a runtime computes; see `GraphValues`."""

    def __init__(
        self,
        name: str,
        path: Path,
        inputs: Mapping[str, Array],
        load: Callable[[Path], Session],
    ) -> None:
        self.name = name
        self._graph = FileGraph(path)
        self._inputs = inputs
        self._load = load
        # In the folder of the file, because paths of external data are relative to it.
        self._scratch = path.with_name(f".{path.stem}.part.onnx")

    def has_value(self, value: str) -> bool:
        return self._graph.find_producer(value) is not None

    def compute(self, names: Sequence[str]) -> Mapping[str, OnnxValue | None]:
        """Return the values; if the runtime rejects them together, compute each one alone."""
        try:
            return dict(zip(names, self._run(names), strict=True))
        except (LoadFailure, RunFailure):
            if len(names) == 1:
                return {names[0]: None}
        return {name: self.compute([name])[name] for name in names}

    def _run(self, names: Sequence[str]) -> Sequence[OnnxValue | None]:
        part = self._graph.extract_part(names)
        self._scratch.write_bytes(part.SerializeToString())
        try:
            outputs = self._load(self._scratch).run(self._inputs)
        finally:
            self._scratch.unlink(missing_ok=True)
        # A map is neither a tensor nor a sequence of tensors.
        return [
            value if all(isinstance(item, np.ndarray) for item in list_items(value)) else None
            for value in outputs
        ]


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

    ONNX has no formal shapes of inputs. The descriptions contain them for operators such as
    `Attention` and `RotaryEmbedding`: "3D tensor with shape `(batch_size, sequence_length,
    hidden_size)`". An exporter may write other shapes that one runtime broadcasts and another one
    rejects.

    `load`: A runtime that accepts the node.
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
    shapes = {n: getattr(arrays[n], "shape", None) for n in node.input if n in arrays}
    return find_violation(node, opset, {**graph.weight_shapes, **shapes})


def find_violation(node: onnx.NodeProto, opset: int, shapes: Mapping[str, _Shape | None]) -> str:
    """Return the documented shape that the inputs of a node violate, or "".

    `shapes`: The shapes of values by name; None for a value that is no tensor.
    """
    known: list[tuple[str, _Shape, list[_Documented]]] = []
    for name, (formal, documented) in zip(node.input, _list_documented(node, opset), strict=False):
        shape = shapes.get(name)
        if shape is not None:
            fitting = [each for each in documented if len(each) == len(shape)]
            if fitting:
                known.append((formal, shape, fitting))
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


def measure_error(actual: OnnxValue | None, expected: OnnxValue) -> float:
    """Return the largest error as a share of the scale; infinite if the kinds differ."""
    if actual is None or isinstance(actual, list) != isinstance(expected, list):
        return math.inf
    pairs = list(zip(list_items(actual), list_items(expected), strict=False))
    if isinstance(actual, list) and len(actual) != len(expected):
        return math.inf
    return max((_measure_array_error(*pair) for pair in pairs), default=0.0)


def _measure_array_error(actual: Array, expected: Array) -> float:
    kinds = actual.dtype.kind + expected.dtype.kind
    if set(kinds) & set("biuOSU"):
        # An index that differs by one is wrong, even if it is large.
        return 0.0 if np.array_equal(actual, expected) else math.inf
    kind = np.complex128 if "c" in kinds else np.float64
    one, other = actual.astype(kind), expected.astype(kind)
    error = compare_arrays(one, other, Limit(atol=math.inf), other).max_abs
    scale = np.abs(other[np.isfinite(other)]).max(initial=0.0)
    return error / (float(scale) or 1.0)
