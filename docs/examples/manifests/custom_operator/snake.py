"""An activation that neither PyTorch nor ONNX has, as an operator of its own."""

from __future__ import annotations

from typing import Any

import torch
from onnxscript import opset18
from torch import Tensor, nn


@torch.library.custom_op("tutorial::snake", mutates_args=())
def snake(x: Tensor, frequency: float) -> Tensor:
    """Return `x + sin²(frequency x) / frequency`: https://arxiv.org/abs/2006.08195."""
    return x + torch.sin(x * frequency) ** 2 / frequency


@snake.register_fake
def _(x: Tensor, frequency: float) -> Tensor:
    return torch.empty_like(x)


class Network(nn.Module):
    """Two linear layers with the activation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return three values for each row."""
        result: Tensor = self.last(snake(self.first(x), 2.0))
        return result


def symbolic_snake(g: Any, x: Any, frequency: Any) -> Any:
    """Create the nodes for TorchScript's exporter."""
    sine = g.op("Sin", g.op("Mul", x, frequency))
    return g.op("Add", x, g.op("Div", g.op("Mul", sine, sine), frequency))


def onnx_snake(x: Any, frequency: float) -> Any:
    """Create the nodes for dynamo, in onnxscript."""
    sine = opset18.Sin(opset18.Mul(x, frequency))
    return opset18.Add(x, opset18.Div(opset18.Mul(sine, sine), frequency))
