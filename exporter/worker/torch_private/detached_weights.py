"""The weights of a TorchScript export, which bypass protobuf.

torch puts all weights into one message, serializes it and copies the bytes. That needs three times
the memory of the weights. Here the weights remain the tensors of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import TorchTensor

from exporter.worker.torch_private.guards import is_enabled, replace_attribute

_DTYPES = frozenset(
    {
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool,
        torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    }
)  # fmt: skip
#: The index of `keep_initializers_as_inputs` in the arguments of `_export_onnx` after the weights.
_LISTS_WEIGHTS = 5


@dataclass(slots=True)
class DetachedWeights:
    """The weights of one export."""

    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    """By their names in the graph."""
    are_inputs: bool = False
    """True if the file lists them as inputs, too."""


def is_plain_tensor(tensor: torch.Tensor) -> bool:
    """Return True if torch stores a weight as its bytes."""
    return (
        tensor.layout is torch.strided
        and tensor.dtype in _DTYPES
        and tensor.device.type != "meta"
        and not tensor.is_quantized
    )


@contextmanager
def detach_weights() -> Iterator[DetachedWeights]:
    """Keep the weights out of the protobuf message of a TorchScript export.

    Yields:
        The weights; none if the group is off or if a weight is not a plain tensor.
    """
    detached = DetachedWeights()
    if not is_enabled("weights"):
        yield detached
        return
    graph_class: Any = torch.Graph
    export = graph_class._export_onnx

    def export_graph(graph: torch.Graph, weights: dict[str, torch.Tensor], *rest: Any) -> Any:
        if not all(is_plain_tensor(weight) for weight in weights.values()):
            return export(graph, weights, *rest)
        detached.weights.update(weights)
        detached.are_inputs = bool(rest[_LISTS_WEIGHTS])
        return export(graph, {}, *rest)

    with replace_attribute(graph_class, "_export_onnx", export_graph):
        yield detached


def restore_weights(
    model: ir.Model, detached: DetachedWeights, buffers: Iterable[torch.Tensor] = ()
) -> None:
    """Store the weights in the graph, in the order of its inputs.

    Args:
        model: The graph without weights.
        detached: The weights, which remain the tensors of the module.
        buffers: Tensors that change before the file is written; the graph gets copies of them.
    """
    graph = model.graph
    changing = {buffer.untyped_storage().data_ptr() for buffer in buffers}
    for value in graph.inputs:
        if value.name in detached.weights:
            weight = detached.weights[value.name]
            if weight.untyped_storage().data_ptr() in changing:
                weight = weight.clone()
            value.const_value = TorchTensor(weight, name=value.name)
            graph.register_initializer(value)
    if not detached.are_inputs:
        inputs = [value for value in graph.inputs if value.name not in detached.weights]
        graph.inputs.clear()
        graph.inputs.extend(inputs)
