"""Models of the section on names and axes."""

import torch
from torch import Tensor, nn


class Affine(nn.Module):
    """One layer: `[batch, 4]` to `[batch, 4]`."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        return y


class Half(nn.Module):
    """Two layers, of which one is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.other = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        return y


class Patches(nn.Module):
    """Sums over patches of 8: the width has to be a multiple of that."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], x.shape[1] // 8, 8).sum(-1)


class Found(nn.Module):
    """How many rows come out depends on the values."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nonzero(x > 0)


class Fixed(nn.Module):
    """Takes the size of the batch for a constant."""

    def forward(self, x: Tensor) -> Tensor:
        rows = int(x.shape[0])
        return x * torch.arange(rows).reshape(rows, 1).expand(rows, 4)
