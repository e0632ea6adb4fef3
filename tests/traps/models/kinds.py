"""Models over other kinds of values than tensors of floats."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Beyond(nn.Module):
    """Beyond the range of float16, all of it or what is large."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        return (x.abs() + 1) * self.by * self.by


class Rotated(nn.Module):
    """Complex numbers in and out; one output is real, one is conjugated."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turn", torch.randn(4, dtype=torch.complex64))

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        turned = z * self.turn
        return turned.conj(), turned.abs()


class Spectrum(nn.Module):
    """Floats in, complex numbers out."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.fft(self.linear(x))


class Cached(nn.Module):
    """A cache that is empty at the first step, and one that is not."""

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([past, x], 1) * 2, past * 2


class Nothing(nn.Module):
    """No element at all."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :0] + 1


class Pieces(nn.Module):
    """A list of as many rows as there are, and their sum."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        pieces: list[Tensor] = []
        y = self.linear(x)
        for row in range(x.size(0)):
            pieces += [y[row] * (row + 1)]
        return pieces, y.sum(0)


class Growing(nn.Module):
    """Items of another size each."""

    def forward(self, x: Tensor) -> list[Tensor]:
        pieces: list[Tensor] = []
        for row in range(x.size(0)):
            pieces += [torch.tanh(x[: row + 1])]
        return pieces


class Halves(nn.Module):
    """Two halves of its columns, by `split`."""

    def forward(self, x: Tensor) -> list[Tensor]:
        return list(torch.split(torch.sin(x), 2, dim=1))


class Labels(nn.Module):
    """A list of integers: where each row is largest, and smallest."""

    def forward(self, x: Tensor) -> list[Tensor]:
        return [x.argmax(1), x.argmin(1)]
