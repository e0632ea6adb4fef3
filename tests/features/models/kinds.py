"""Models over other dtypes than float32, over lists, and over nothing."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Norm(nn.Module):
    """A linear layer, a norm and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(torch.relu(self.linear(x)))


class Convolved(nn.Module):
    """One convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(2, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(x)


class Beyond(nn.Module):
    """Beyond the range of float16 on its way."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 300.0 * 300.0 / 300.0


class Spectrum(nn.Module):
    """Floats in, complex numbers out."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.fft(x)


class Turned(nn.Module):
    """Complex numbers in and out."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * x).conj()


class Doubled(nn.Module):
    """Twice its input, in the input's dtype."""

    def forward(self, x: Tensor) -> Tensor:
        return x + x


class Inverted(nn.Module):
    """Truth values."""

    def forward(self, x: Tensor) -> Tensor:
        return ~x


class Scaled(nn.Module):
    """A scalar in, and one out."""

    def forward(self, x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return x * k, (x * k).sum()


class Cached(nn.Module):
    """A cache that is empty at the first step."""

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([past, x], 1) * 2, past * 2


class Pieces(nn.Module):
    """A list of as many rows as there are."""

    def forward(self, x: Tensor) -> list[Tensor]:
        pieces: list[Tensor] = []
        for row in range(x.size(0)):
            pieces += [torch.tanh(x[row]) * (row + 1)]
        return pieces


class Halves(nn.Module):
    """Two halves of its columns."""

    def forward(self, x: Tensor) -> list[Tensor]:
        return list(torch.split(torch.sin(x), 2, dim=1))
