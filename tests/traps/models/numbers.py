"""Models at the limits of floating point, and models that differ between two calls."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * 1e-9


class Unlikely(nn.Module):
    """A probability that is 0.5 or so for the example and 1e-17 for equal inputs."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid((x * x).sum(1) - 40 * x.prod(1))


class UnlikelyDropped(nn.Module):
    """The same, with a probability of the example as a fixed bound."""

    def forward(self, x: Tensor) -> Tensor:
        probability = torch.sigmoid((x * x).sum(1) - 40 * x.prod(1))
        return torch.where(probability < float(probability.median()), 0.0, probability)


class SomeNaN(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sqrt(x)


class AllNaN(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sqrt(-1 - x * x)


class SomeInf(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0.5, x / 0.0, x)


class Deviation(nn.Module):
    """Returns NaN for a batch of 1, as PyTorch does."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.std(dim=0)


class HalfOverflow(nn.Module):
    """Exceeds the range of float16 inside, and PyTorch rounds to infinity."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 300.0 * 300.0 / 300.0


class Half(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4).half()

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


class SeededNoise(nn.Module):
    """The same random numbers in each call of PyTorch, others in the file."""

    def forward(self, x: Tensor) -> Tensor:
        torch.manual_seed(1)
        return x + torch.rand(x.shape)


class Dropped(nn.Module):
    """Dropout as a module: it is off in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x) + x


class AlwaysDropped(nn.Module):
    """Dropout as a function: it is on by default."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(x, 0.5) + x


class FreshWeights(nn.Module):
    """Creates a layer in each call."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.Linear(4, 4)(x)


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.norm.running_mean = torch.tensor([0.5, -0.5, 1.0, 0.0])
        self.norm.running_var = torch.tensor([2.0, 0.5, 1.0, 3.0])

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class CallCounter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


class QuietCounter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * 2


class PythonCounter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.first is None:
            self.first = x.mean()
        return x + self.first


class CachedTable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None:
            self.table = torch.linspace(0, 1, 4)
        return x + self.table


class WritesInput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.add_(1.0) * 2


class WritesView(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 1
        column = y[:, 0]
        column.mul_(3.0)
        return y


class WritesSlice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        y[:, 1] = 7.0
        return y


class WritesAt(nn.Module):
    """Overwrites by index, which ONNX has from opset 11 on."""

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        y = x.clone()
        y[:, index] = 7.0
        return y


class WritesEllipsis(nn.Module):
    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        y = x.clone()
        y[..., index] = 7.0
        return y


class ReadsAt(nn.Module):
    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        return x[:, index]


class ReadsLast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x[:, -1:]


class Exponential(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(x * 5)


class Softmaxed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x, dim=1)


class LostNaN(nn.Module):
    """Relu of NaN is NaN in PyTorch."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.sqrt(x)) + x


class NoneFound(nn.Module):
    """Selects values above a limit that no value exceeds."""

    def forward(self, x: Tensor) -> Tensor:
        return x[x > 1000]


class Masked(nn.Module):
    """Returns logits, with a large negative number at masked positions."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return self.linear(x).masked_fill(~keep, -1e9)


class ByDtype(nn.Module):
    """Computes another function in float64, so float64 gives no rounding error."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x) if x.dtype is torch.float64 else torch.cos(x)


class Canceled(nn.Module):
    """Subtracts a mean from itself: 0.2 % of the result is rounding."""

    def forward(self, x: Tensor) -> Tensor:
        return (x + 1000.0).mean(dim=1) - 1000.0


class Causal(nn.Module):
    """Returns logits with a constant mask of the lowest finite number."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        columns = torch.arange(4)
        lowest = torch.finfo(torch.float32).min
        return self.linear(x).masked_fill(columns > 1, lowest)


class SmallColumn(nn.Module):
    """Returns large values, and small ones with a number that Python reads."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x * 5e3, x + 1e-3 * x[0, 0].item()], -1)


class SmallColumnAlike(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x * 5e3, x + 1e-3 * x[0, 0]], -1)


class SmallRow(nn.Module):
    """Returns a large row and small ones, with a number that Python reads."""

    def forward(self, x: Tensor) -> Tensor:
        factor = torch.cat([torch.full_like(x[:1], 2e3), torch.ones_like(x[1:])])
        return x * factor + 1e-5 * x[0, 0].sign().item()


class SmallRowAlike(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        factor = torch.cat([torch.full_like(x[:1], 2e3), torch.ones_like(x[1:])])
        return x * factor + 1e-5 * x[0, 0].sign()


class SmallRowDifference(nn.Module):
    """Returns a large row, and small ones that lose most of their digits."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Linear(4, 16)

    def forward(self, x: Tensor) -> Tensor:
        large = torch.tanh(self.weight(x)) * 1e3 + 5e3
        return torch.cat([large[:1], large[1:] - large[1:] * (1 + 1e-7) + 0.01])


class SmallDifference(nn.Module):
    """Returns large values, and small ones that lose all but two digits."""

    def forward(self, x: Tensor) -> Tensor:
        large = torch.exp(x) * 2e3
        return torch.stack([large, torch.sin(x) + large - large * (1 + 1e-7)], -1)


class RareHalf(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x == -71, x // 2, x)


class RarePositiveHalf(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x == 71, x // 2, x)


class LayerScale(nn.Module):
    """Adds a branch that its initial scale of 0 hides."""

    def __init__(self, is_sound: bool = False) -> None:
        super().__init__()
        self.is_sound = is_sound
        self.layer = nn.Linear(4, 4)
        self.gamma = nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return x + self.gamma * (torch.floor(y / 0.5) if self.is_sound else y // 0.5)


class FixedDtype(nn.Module):
    """Computes small probabilities in float32, also if its inputs have float64."""

    def __init__(self, share: float = 0.0) -> None:
        super().__init__()
        self.share = share
        self.layer = nn.Linear(4, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.sigmoid(self.layer(x).float() - 9.0)
        return y + self.share * float(x.max()) if self.share else y
