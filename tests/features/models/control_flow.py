"""Loops and branches over values."""

from torch import Tensor, nn


class Loop(nn.Module):
    """Adds n, n - 1, ..., 1: turns as often as an input says."""

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        for step in range(int(n)):
            x = x + (n - step)
        return x
