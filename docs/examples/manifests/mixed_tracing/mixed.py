"""Traced layers around a scripted loop."""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.jit.script
def approach(x: Tensor, target: Tensor, steps: Tensor) -> Tensor:
    """Move halfway to the target, as often as `steps` demands."""
    for _ in range(int(steps)):
        x = x + (target - x) * 0.5
    return x


class Refined(nn.Module):
    """A linear layer before and one after the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.last = nn.Linear(4, 4)

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        """Refine the output of the first layer, then apply the last."""
        refined: Tensor = self.last(approach(self.first(x), x, steps))
        return refined
