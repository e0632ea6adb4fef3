"""Models for the rows on operators and runtimes."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


class Rare(nn.Module):
    """Uses two operators that neither exporter can convert."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.special.bessel_j0(x) + torch.special.bessel_j0(x + 1)
        return y + torch.special.airy_ai(x)


class Squeezed(nn.Module):
    """Squeezes two axes at once, an overload without a translation in dynamo."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.squeeze(x[None, None], (0, 1))
