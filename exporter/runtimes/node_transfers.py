"""Which nodes of a file compute shapes on the CPU, and how often a run copies between devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

import onnx

_COPIES = frozenset({"MemcpyFromHost", "MemcpyToHost"})
#: Operators whose outputs depend on the shape of their input only.
_SHAPES = frozenset({"Shape", "Size"})


class Transfers(NamedTuple):
    """The nodes that run on the CPU beside another provider."""

    shapes: dict[str, int]
    """Those that compute shapes, by operator: ONNX Runtime keeps them there on purpose."""
    copies: int
    """The copies between devices in a run."""


def count_transfers(proto: onnx.ModelProto, names: Collection[str]) -> Transfers:
    """Return the transfers of a file as ONNX Runtime runs it.

    `proto`: The file after the optimization, with the nodes that copy.
    `names`: The nodes that the CPU runs. One without a name computes no shapes.
    """
    shapes: Counter[str] = Counter()
    copies = _walk(proto.graph, frozenset(), {*names} - {""}, shapes)
    return Transfers(dict(+shapes), copies)


def _walk(
    graph: onnx.GraphProto, outer: Iterable[str], names: set[str], shapes: Counter[str]
) -> int:
    """Count the nodes that compute shapes, and return the number of copies.

    `outer`: Values around the graph that depend on shapes and constants only.
    """
    sized = {*outer, "", *(each.name for each in graph.initializer)}
    sized -= {each.name for each in graph.input}
    copies = 0
    for node in graph.node:
        bodies = [each.g for each in node.attribute if each.type == onnx.AttributeProto.GRAPH]
        copies += (node.op_type in _COPIES) + sum(
            _walk(body, sized, names, shapes) for body in bodies
        )
        is_sized = sized.issuperset(node.input) and not bodies
        if is_sized or node.op_type in _SHAPES:
            sized.update(node.output)
            shapes[node.op_type] += node.name in names
    return copies
