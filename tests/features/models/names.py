"""Models of the section on names and axes."""

import torch
from torch import Tensor, nn


class Affine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        return y


class Scaled(nn.Module):
    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return x * scale


class Half(nn.Module):
    """Two layers, one of them without a use."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.other = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        return y


class Patches(nn.Module):
    """Sums over patches of 8: the width must be a multiple of 8."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], x.shape[1] // 8, 8).sum(-1)


class SizeByValues(nn.Module):
    """The values set the number of output rows."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nonzero(x > 0)


class Fixed(nn.Module):
    """Fixes the size of the batch as a constant."""

    def forward(self, x: Tensor) -> Tensor:
        rows = int(x.shape[0])
        return x * torch.arange(rows).reshape(rows, 1).expand(rows, 4)
