"""The weights of a TorchScript export, kept out of protobuf until the file is written.

In: the graph as torch wrote it, its weights as inputs, and the weights themselves. Out: the same
graph with the weights stored in it, byte for byte the one that torch would have written.

torch puts all weights into one message, serialises it and copies the bytes: three times the weights
at once, beside the model. Here they stay the tensors that the model has.
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
    """What was kept out of one export."""

    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    """By their names in the graph."""
    are_inputs: bool = False
    """Whether they are listed as inputs, too."""


def is_plain_tensor(tensor: torch.Tensor) -> bool:
    """Whether a weight is a plain tensor, which torch stores as its bytes."""
    return (
        tensor.layout is torch.strided
        and tensor.dtype in _DTYPES
        and tensor.device.type != "meta"
        and not tensor.is_quantized
    )


def restore_weights(model: ir.Model, aside: DetachedWeights) -> None:
    """Stores the weights in the graph, in the order in which it has them as inputs."""
    graph = model.graph
    for value in graph.inputs:
        if value.name in aside.weights:
            value.const_value = TorchTensor(aside.weights[value.name], name=value.name)
            graph.register_initializer(value)
    if not aside.are_inputs:
        own = [value for value in graph.inputs if value.name not in aside.weights]
        graph.inputs.clear()
        graph.inputs.extend(own)
