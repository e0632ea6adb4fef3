"""The weights of a TorchScript export, which bypass protobuf.

Input: the graph that torch wrote with its weights as inputs, and the weights.
Output: the same graph with stored weights, byte for byte equal to the graph of torch.

torch puts all weights into one message, serializes it and copies the bytes. That needs three times
the memory of the weights. Here the weights remain the tensors of the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import TorchTensor

_DTYPES = frozenset(
    {
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool,
        torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    }
)  # fmt: skip


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


def restore_weights(model: ir.Model, detached: DetachedWeights) -> None:
    """Store the weights in the graph, in the order of its inputs."""
    graph = model.graph
    for value in graph.inputs:
        if value.name in detached.weights:
            value.const_value = TorchTensor(detached.weights[value.name], name=value.name)
            graph.register_initializer(value)
    if not detached.are_inputs:
        inputs = [value for value in graph.inputs if value.name not in detached.weights]
        graph.inputs.clear()
        graph.inputs.extend(inputs)
