"""Models of the section on options: each shows the effect of one option."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x))


class Stacked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Layer()
        self.second = Layer()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.first(x))
        return y


class Block(nn.Module):
    """A norm and a layer with a factor, which is a constant of each block."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.linear = nn.Linear(4, 4)
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.linear(self.norm(x)) * self.factor
        return y


class Blocks(nn.Module):
    """Three of these blocks; one of them has another factor."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(2.0), Block(3.0), Block(2.0))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.blocks(x)
        return y


class Stable(nn.Module):
    """BatchNorm, which uses the statistics of the batch in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(x)
        return y


class Folded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.matmul(x.unsqueeze(1), self.weight.transpose(0, 1)).squeeze(1)


class RepeatedNode(nn.Module):
    """Repeats one computation, which an optimizer can merge."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(x * 0.1) + torch.exp(x * 0.1)


class Bessel(nn.Module):
    """An operator that ONNX lacks."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.special.bessel_j0(x)


class _Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0]


class Swish(nn.Module):
    """An `autograd.Function` without a `symbolic`."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = _Swish.apply(x)
        return y
