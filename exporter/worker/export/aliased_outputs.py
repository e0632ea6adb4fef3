"""Outputs that are one value, or an input: each gets a value of its own, and so its own name.

In: an `onnx_ir.Model` as dynamo made it, and the names that it was asked to have. Out: the same
model, changed in place where a value stands in two places.

The optimiser does the same. Without it, dynamo gives such a value each of its names in turn, so
that two outputs have the last one, or an input has an output's.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir


def separate_aliased_outputs(
    model: ir.Model, inputs: Sequence[str], outputs: Sequence[str]
) -> None:
    """Puts an `Identity` before each output that has its value from another output or an input.

    Args:
        model: Of the dynamo exporter.
        inputs: The names of its inputs, in the order that they have there.
        outputs: The names of its outputs, in order.
    """
    graph = model.graph
    taken = set(graph.inputs)
    aliased = []
    for index, value in enumerate(graph.outputs):
        if value in taken:
            aliased.append(index)
        taken.add(value)
    for index in aliased:
        graph.outputs[index] = _copy_of(graph.outputs[index], graph)
    if aliased:
        for values, names in ((graph.inputs, inputs), (graph.outputs, outputs)):
            for value, name in zip(values, names, strict=False):  # weights may follow
                value.name = name


def _copy_of(value: ir.Value, graph: ir.Graph) -> ir.Value:
    node = ir.node("Identity", inputs=[value])
    (copy,) = node.outputs
    copy.type, copy.shape = value.type, value.shape
    graph.append(node)
    return copy
