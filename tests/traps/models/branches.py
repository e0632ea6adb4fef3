"""Models with a branch on sizes, and operators with a fault at single sizes."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

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


class Bytes(nn.Module):
    """A branch on the bytes of a tensor, of which the tracer does not warn."""

    def __init__(self, other: float = 2.0) -> None:
        super().__init__()
        self.other = other

    def forward(self, x: Tensor) -> Tensor:
        return x * self.other if x.nbytes > 4096 else x * 2.0


class LargeBytes(Bytes):
    """The same in a model with 17 million weights, whose runs are slow."""

    def __init__(self, other: float = 2.0) -> None:
        super().__init__(other)
        self.table = nn.Parameter(torch.ones(17_000_000))


class Configured(nn.Module):
    """A branch on a size and a number of a configuration, beside larger numbers."""

    def __init__(self, other: float = 2.0) -> None:
        super().__init__()
        self.config = SimpleNamespace(limit=208, unread=[40_000])
        self.other = other

    def forward(self, x: Tensor) -> Tensor:
        limit = self.config.limit
        return x * self.other if len(x.unbind(0)) > limit else x * 2.0


_LIMIT = 309


class GlobalLimit(nn.Module):
    """A branch on a size and a number of the module."""

    def __init__(self, other: float = 2.0) -> None:
        super().__init__()
        self.other = other

    def forward(self, x: Tensor) -> Tensor:
        return x * self.other if len(x.unbind(0)) > _LIMIT else x * 2.0


class ManyNumbers(nn.Module):
    """A branch at the largest of many numbers."""

    def __init__(self, other: float = 2.0) -> None:
        super().__init__()
        self.other = other
        self.heads, self.width, self.layers, self.rank, self.groups = 41, 73, 33, 25, 57
        self.first, self.second, self.third, self.longest = 81, 89, 97, 450

    def forward(self, x: Tensor) -> Tensor:
        return x * self.other if len(x.unbind(0)) > self.longest else x * 2.0


class ChangedByTrace(Bytes):
    """The trace changes an attribute, so only a new model shows the other branch."""

    scale = 1.0

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x) * self.scale
        if torch.jit.is_tracing():
            self.scale = 3.0
        return y


class Unbound(nn.Module):
    """A branch on the number of rows as Python counts them."""

    def __init__(self, other: float = 2.0) -> None:
        super().__init__()
        self.other = other

    def forward(self, x: Tensor) -> Tensor:
        return x * self.other if len(x.unbind(0)) > 20 else x * 2.0


class Brightest(nn.Module):
    """A branch on the largest element, of which a library silences the warning."""

    def __init__(self, other: float = 2.0) -> None:
        super().__init__()
        self.other = other

    def forward(self, x: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return x * self.other if x.max() > 0.97 else x * 2.0


class EarlyStop(nn.Module):
    """A decoder that ends as soon as each row has the end token."""

    def __init__(self, end: float = 0.0) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 8)
        self.head = nn.Linear(8, 10)
        nn.init.constant_(self.head.bias[3:4].data, end)

    def forward(self, x: Tensor) -> Tensor:
        ids = x
        for _ in range(5):
            following = self.head(self.table(ids).mean(1)).argmax(-1, keepdim=True)
            ids = torch.cat([ids, following], 1)
            if (ids[:, x.shape[1] :] == 3).any(-1).all():
                break
        return ids


class RolledBack(nn.Module):
    """The file is wrong at the length 3 only: the slice begins before the first element."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.roll(x, -4, 1)
