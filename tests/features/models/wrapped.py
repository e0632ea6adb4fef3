"""Models in a form that torch.onnx has words of its own for."""

from typing import Any

import torch
from torch import Tensor, nn


class Exportable(torch.onnx.ExportableModule):
    """A module that knows how it is called, and what its inputs are called."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)

    def example_arguments(self) -> tuple[tuple[Any], dict[str, Any] | None]:
        """What it is exported with where nobody says otherwise."""
        return (torch.randn(2, 4),), None


def parallel() -> nn.Module:
    """A module for several devices."""
    return nn.DataParallel(nn.Linear(4, 4))


class FakeQuantized(nn.Module):
    """Rounds as a quantized model would, in floats: scale 1/16 and zero point 3, to uint8."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(x, 0.0625, 3, 0, 255)


class Quantized(nn.Module):
    """A layer in integers, between a float and a float."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.ao.nn.quantized.Linear(4, 4)
        weight = torch.quantize_per_tensor(torch.randn(4, 4), 0.05, 0, torch.qint8)
        self.linear.set_weight_bias(weight, torch.randn(4))
        self.linear.scale, self.linear.zero_point = 0.1, 64

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(torch.quantize_per_tensor(x, 0.05, 64, torch.quint8)).dequantize()
