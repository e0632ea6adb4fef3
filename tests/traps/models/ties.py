"""Models that select among equal values, and sums and transforms that PyTorch computes exactly.

Each broken model computes something else while it is exported.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def is_exporting() -> bool:
    """Return whether an exporter runs the model."""
    return torch.jit.is_tracing() or torch.compiler.is_exporting()


class TopTied(nn.Module):
    """Returns the largest of rounded values, many of them equal, and their indices."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = x.round().topk(3, dim=1)
        return values, indices


class TopWrong(nn.Module):
    """Selects among coarser values while it is exported."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        keys = x.round()
        indices = (x / 2 if is_exporting() else x).round().topk(3, dim=1).indices
        return keys.topk(3, dim=1).values, indices


class TopRepeated(nn.Module):
    """Returns one index of equal values three times while it is exported."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = (x * 0 + 1).topk(3, dim=1)
        return values + x[:, :1], indices * 0 if is_exporting() else indices


class TopGathered(nn.Module):
    """Returns other values at the indices of equal values."""

    def forward(self, x: Tensor) -> Tensor:
        return x.gather(1, x.round().topk(3, dim=1).indices)


class SortTied(nn.Module):
    """Returns the order of rounded values as int32, transposed."""

    def forward(self, x: Tensor) -> Tensor:
        return x.round().sort(dim=1, descending=True).indices.t().to(torch.int32)


class LabelTied(nn.Module):
    """Returns the larger of two sums that differ by rounding only."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(500, 16)
        self.two = nn.Linear(500, 16)
        with torch.no_grad():
            self.two.weight.copy_(self.one.weight.flip(1))
            self.two.bias.copy_(self.one.bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.two(x.flip(1))], dim=1).argmax(dim=1)


class LabelWrong(LabelTied):
    """Adds 1 to a quarter of the logits while it is exported."""

    def forward(self, x: Tensor) -> Tensor:
        half = torch.arange(16) % 2 if is_exporting() else torch.zeros(16)
        other = self.two(x.flip(1)) + half
        return torch.cat([self.one(x), other], dim=1).argmax(dim=1)


class FirstToken(nn.Module):
    """Returns the first position of a token, or the last one while it is exported."""

    def __init__(self, last: bool = False) -> None:
        super().__init__()
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        found = (x.round() == 0).to(torch.int32)
        if self.last and is_exporting():
            return found.shape[1] - 1 - found.flip(1).argmax(dim=1)
        return found.argmax(dim=1)


class LastToken(FirstToken):
    """Returns the last position while it is exported."""

    def __init__(self) -> None:
        super().__init__(last=True)


class LongSum(nn.Module):
    """A cumulative sum over thousands of elements, which PyTorch adds in float64."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        total = x.cumsum(dim=1)
        return total * self.factor if is_exporting() else total


class LongSumWrong(LongSum):
    """0.02 % more while it is exported."""

    def __init__(self) -> None:
        super().__init__(factor=1.0002)


class Spectrum(nn.Module):
    """A transform of 60 points, which ONNX Runtime computes less exactly than PyTorch."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        result = torch.view_as_real(torch.fft.fft(x, dim=1))
        return result * self.factor if is_exporting() else result


class SpectrumWrong(Spectrum):
    """0.005 % more while it is exported."""

    def __init__(self) -> None:
        super().__init__(factor=1.00005)


class NearRows(nn.Module):
    """Returns the row of a table for one of two sums that differ by rounding only."""

    def __init__(self, offset: float = 0.0) -> None:
        super().__init__()
        self.offset = offset
        self.one, self.two = nn.Linear(500, 1), nn.Linear(500, 1)
        self.rows = nn.Parameter(torch.randn(3, 4))
        with torch.no_grad():
            self.two.weight.copy_(self.one.weight.flip(1))
            self.two.bias.copy_(self.one.bias)

    def forward(self, x: Tensor) -> Tensor:
        offset = self.offset if is_exporting() else 0.0
        scores = torch.cat([self.one(x), self.two(x.flip(1)), self.one(x) - 1 + offset], dim=1)
        return self.rows[scores.argmax(dim=1)]


class NearRowsWrong(NearRows):
    """Prefers a third sum while it is exported."""

    def __init__(self) -> None:
        super().__init__(offset=2.0)


class NearBins(nn.Module):
    """Counts the thresholds below a sum, of which one is the sum within rounding."""

    def __init__(self, offset: float = 0.0) -> None:
        super().__init__()
        self.offset = offset
        self.total = nn.Linear(500, 1)

    def forward(self, x: Tensor) -> Tensor:
        offset = self.offset if is_exporting() else 0.0
        # The same sum in another order.
        again = (self.total.weight * x).flip(1).sum(1, keepdim=True) + self.total.bias
        return (self.total(x) > again).to(torch.int64) + 2 * (self.total(x) > 0.5 + offset)


class NearBinsWrong(NearBins):
    """Has another exact threshold while it is exported."""

    def __init__(self) -> None:
        super().__init__(offset=-1.0)
