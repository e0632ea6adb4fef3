"""Models with other dtypes than float32, with lists, and without elements."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(torch.relu(self.linear(x)))


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(2, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(x)


class Beyond(nn.Module):
    """Exceeds the range of float16 inside."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 300.0 * 300.0 / 300.0


class Spectrum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.fft(x)


class Turned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * x).conj()


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x


class Inverted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return ~x


class Scaled(nn.Module):
    def forward(self, x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return x * k, (x * k).sum()


class Cached(nn.Module):
    """Takes a cache that is empty at the first step."""

    def forward(self, x: Tensor, earlier: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([earlier, x], 1) * 2, earlier * 2


class Pieces(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        pieces: list[Tensor] = []
        for row in range(x.size(0)):
            pieces += [torch.tanh(x[row]) * (row + 1)]
        return pieces


class Halves(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        return list(torch.split(torch.sin(x), 2, dim=1))
