"""The file as a graph of named values, and the part of it that some of them need.

In: the path of a file. Out: `FileGraph`: who makes a value, from what, and a smaller model that
computes only the values asked for. Weights outside the file stay there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx


class FileGraph:
    """The main graph of a file; nodes inside `Loop` and `If` are part of their node."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._model = onnx.load(str(path), load_external_data=False)
        self.nodes = list(self._model.graph.node)
        self._maker = {
            name: index for index, node in enumerate(self.nodes) for name in node.output if name
        }
        self._needs = [tuple(dict.fromkeys(_used_by(node))) for node in self.nodes]

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the file's outputs."""
        return tuple(output.name for output in self._model.graph.output)

    @property
    def values(self) -> tuple[str, ...]:
        """Every value that a node computes, in the order of the file."""
        return tuple(self._maker)

    def maker(self, value: str) -> int | None:
        """The index of the node that computes a value; None for inputs and weights."""
        return self._maker.get(value)

    def computed_inputs(self, index: int) -> tuple[str, ...]:
        """What a node reads that another node computed."""
        return tuple(name for name in self._needs[index] if name in self._maker)

    def ancestors(self, values: Iterable[str]) -> frozenset[int]:
        """Every node that has a part in these values."""
        found: set[int] = set()
        waiting = [self._maker[name] for name in values if name in self._maker]
        while waiting:
            index = waiting.pop()
            if index not in found:
                found.add(index)
                waiting += [self._maker[name] for name in self.computed_inputs(index)]
        return frozenset(found)

    def part(self, values: Iterable[str]) -> onnx.ModelProto:
        """A model whose outputs are these values, with the nodes and weights they need."""
        wanted = list(values)
        kept = self.ancestors(wanted)
        used = set(wanted).union(*(self._needs[index] for index in kept))
        part = onnx.ModelProto()
        part.CopyFrom(self._model)
        graph = part.graph
        for field in (graph.node, graph.output, graph.value_info, graph.initializer):
            del field[:]
        graph.node.extend(self.nodes[index] for index in sorted(kept))
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
        graph.initializer.extend(
            item for item in self._model.graph.initializer if item.name in used
        )
        return part


def _used_by(node: onnx.NodeProto) -> Iterator[str]:
    """Inputs of a node and of every node in its bodies; names of the bodies' own do no harm."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            for inner in body.node:
                yield from _used_by(inner)
            yield from (output.name for output in body.output)
