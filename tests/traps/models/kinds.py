"""Models with other kinds of values than float tensors."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Beyond(nn.Module):
    """Exceeds the range of float16 for all values, or for the large ones."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        return (x.abs() + 1) * self.by * self.by


class Rotated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turn", torch.randn(4, dtype=torch.complex64))

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        turned = z * self.turn
        return turned.conj(), turned.abs()


class Spectrum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.fft(self.linear(x))


class Cached(nn.Module):
    def forward(self, x: Tensor, earlier: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([earlier, x], 1) * 2, earlier * 2


class Nothing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :0] + 1


class Pieces(nn.Module):
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
    def forward(self, x: Tensor) -> list[Tensor]:
        pieces: list[Tensor] = []
        for row in range(x.size(0)):
            pieces += [torch.tanh(x[: row + 1])]
        return pieces


class Halves(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        return list(torch.split(torch.sin(x), 2, dim=1))


class Labels(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        return [x.argmax(1), x.argmin(1)]
