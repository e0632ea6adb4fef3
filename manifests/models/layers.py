"""Layers that several architectures share."""

import torch
from torch import Tensor, nn


class Concat(nn.Module):
    """Parallel branches, joined on the channels.

    Shapes: `[batch, c, h, w]` -> `[batch, sum of the branches' channels, h', w']`.
    """

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        """Join the outputs of all branches."""
        return torch.cat([branch(x) for branch in self.branches], dim=1)
