"""Models with a branch on sizes, and operators with a fault at single sizes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Aligned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] % 8 == 0 else x + 1


class AlignedAlike(nn.Module):
    """Pads to a multiple of 8 and cuts the padding: the same function for all sizes."""

    def forward(self, x: Tensor) -> Tensor:
        rest = -x.shape[0] % 8
        return torch.cat([x, x.new_zeros(rest, 4)])[: x.shape[0]] + 1


class Square(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        return x * 2 if height == width else x + 1


class SquareAlike(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        return x + 1 if height == width else 1 + x


class SameLength(nn.Module):
    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return q + k if q.shape[1] == k.shape[1] else q + k.mean(1, keepdim=True)


class AnyLength(nn.Module):
    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        if q.shape[1] == k.shape[1]:
            return k.mean(1, keepdim=True) + q
        return q + k.mean(1, keepdim=True)


class Middle(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if 20 < x.shape[0] < 100 else x + 1


class MiddleAlike(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 1 + x if 20 < x.shape[0] < 100 else x + 1


class Alone(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        rows, columns = x.shape
        return x * 2 if rows == 1 and columns == 1 else x + 1


class Rolled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.roll(x, 3, 0)


class RolledWithin(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        index = (torch.arange(x.shape[0]) - 3) % x.shape[0]
        return x[index]


class Mirrored(nn.Module):
    """Halves and doubles a length; an even one lacks an element, which is added in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv1d(4, 4, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose1d(4, 4, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.up(self.down(x))
        if y.shape[-1] != x.shape[-1]:
            y = functional.pad(y, (0, 1))
        return y


class MirroredCut(nn.Module):
    """Doubles to one element more at each length, and cuts it."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv1d(4, 4, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose1d(4, 4, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.up(self.down(x))
        return y[..., : x.shape[-1]]


class Nearest(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return functional.interpolate(x, size=64, mode="nearest")


class NearestDoubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return functional.interpolate(x, scale_factor=2.0, mode="nearest")


class Long(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 30 else x + 1


class LongAlike(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 1 + x if x.shape[0] > 30 else x + 1


class Doubled(nn.Module):
    """Computes another function if one size is twice the other."""

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        return x * 2 if width == 2 * height else x + 1


class Remainder(nn.Module):
    """Computes another function at single sizes, of which the first is 19."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] % 23 == 19 else x + 1


class Bounded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 30:
            raise ValueError("too many rows")
        return x + 1


class Root(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if int(x.shape[0] ** 0.5) > 6 else x + 1


class RootAlike(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 1 + x if int(x.shape[0] ** 0.5) > 6 else x + 1


class Unchanged(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.clone() if x.shape[0] != 48 else x + 1


class OwnLimit(nn.Module):
    """Computes another function above a number of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = 200

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > self.limit else x + 1
