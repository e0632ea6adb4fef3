"""A model with more than a megabyte of weights."""

from __future__ import annotations

from torch import Tensor, nn


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 65536)
        self.last = nn.Linear(65536, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x))
