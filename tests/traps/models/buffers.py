"""Models that write into their own buffers, and return them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ReturnsBuffer(nn.Module):
    def __init__(self, by_data: bool = False) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.by_data = by_data

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.mean.data if self.by_data else self.mean
        mean[:] = x.mean(0)
        return x * 2, self.mean


class WritesLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.mean[:] = self.linear(x).mean(0)
        return x * self.mean


class ReturnsCounter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        return x * 2, self.calls


class ReplacesBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        return x * self.calls


class NormalisedLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x))
