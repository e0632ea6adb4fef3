"""The file as a graph of named values, and smaller models that compute some values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx


class FileGraph:
    """The main graph of a file; nodes inside `Loop` and `If` belong to their node."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._model = onnx.load(str(path), load_external_data=False)
        self.nodes = list(self._model.graph.node)
        self._producers = {
            name: index for index, node in enumerate(self.nodes) for name in node.output if name
        }
        self._inputs = [tuple(dict.fromkeys(_list_inputs(node))) for node in self.nodes]

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the file's outputs."""
        return tuple(output.name for output in self._model.graph.output)

    @property
    def values(self) -> tuple[str, ...]:
        """Every value that a node computes, in the order of the file."""
        return tuple(self._producers)

    @property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the initializers by name."""
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
