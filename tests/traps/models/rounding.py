"""Models whose rounding depends on the sample, and models that differ by no rounding."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tests.traps.models.ties import is_exporting


class CanceledAtOne(nn.Module):
    """Returns rows relative to their mean, of which a thousandth remains in a batch of 1."""

    def __init__(self, half: bool = False) -> None:
        super().__init__()
        self.linear, self.half_weights = nn.Linear(4, 4), half

    def forward(self, x: Tensor) -> Tensor:
        weight = self.linear.weight
        if self.half_weights and is_exporting():
            weight = weight.half().float()
        rows = nn.functional.linear(x, weight) + 2
        return rows - rows.mean(0) * 0.999


class EqualImage(nn.Module):
    """Normalizes an image: an image of zeros has equal pixels, whose rounding is enlarged."""

    def __init__(self, kind: str = "group", wrong: bool = False) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 4, 3, padding=1)
        instance = nn.InstanceNorm2d(16, affine=True)
        self.norm = nn.GroupNorm(16, 16) if kind == "group" else instance
        self.wrong = wrong

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        normal = self.norm(hidden)
        if self.wrong and is_exporting():
            normal = normal + 0.02 * (hidden.var((2, 3), keepdim=True) < 1e-6)
        return self.last(nn.functional.silu(normal))


class ManyElements(nn.Module):
    """Normalizes groups of 50,000 elements: runtimes add them in another order."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__()
        self.conv, self.norm, self.wrong = nn.Conv2d(8, 8, 1), nn.GroupNorm(2, 8), wrong

    def forward(self, x: Tensor) -> Tensor:
        if self.wrong and is_exporting():
            self.norm.eps = 1e-3
        normal: Tensor = self.norm(self.conv(x) + 3)
        return normal


class Direction(nn.Module):
    """Returns the direction of a gradient, without a summand of 1e-10 while it is exported."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__()
        self.wrong = wrong

    def forward(self, x: Tensor) -> Tensor:
        across, along = x[:, 1:, 1:] - x[:, 1:, :-1], x[:, 1:, 1:] - x[:, :-1, 1:]
        small = 0.0 if self.wrong and is_exporting() else 1e-10
        return torch.atan(along / (across.abs() + small))


class Waves(nn.Module):
    """Returns waves of a time in the thousands, with frequencies of another rounding."""

    def __init__(self, units: int = 1) -> None:
        super().__init__()
        self.units = units

    def forward(self, x: Tensor) -> Tensor:
        exponents = torch.arange(16, dtype=torch.float32) * (-9.21 / 16)
        frequencies = torch.exp(exponents)
        if is_exporting():
            frequencies = frequencies * (1 + self.units * 2.0**-23)
        return torch.sin((x * 1000 + 3000) * frequencies.to(x.dtype))


class HalfUpBesideQuantized(nn.Module):
    """Rounds halves up while it is exported, beside quantized values that change nothing."""

    def __init__(self, wrong: bool = True) -> None:
        super().__init__()
        self.wrong = wrong

    def forward(self, x: Tensor) -> Tensor:
        quantized = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)
        rounded = torch.floor(x + 0.5) if self.wrong and is_exporting() else torch.round(x)
        return rounded + 0 * quantized


class HalfOfCounts(nn.Module):
    """Rounds halves of exact sums up while it is exported."""

    def __init__(self, wrong: bool = True) -> None:
        super().__init__()
        self.wrong = wrong

    def forward(self, x: Tensor) -> Tensor:
        half = x.float().sum(1) / 2
        return torch.floor(half + 0.5) if self.wrong and is_exporting() else torch.round(half)


class PartlyUndefined(nn.Module):
    """Returns NaN for each 0, and other numbers if there is one."""

    def __init__(self, wrong: bool = True) -> None:
        super().__init__()
        self.wrong = wrong

    def forward(self, x: Tensor) -> Tensor:
        has_zero = (x == 0).any()
        y = x * x / x
        if self.wrong:
            return y - 1 if bool(has_zero) else y + 1
        return torch.where(has_zero, y - 1, y + 1)


class UndefinedBesideFixed(nn.Module):
    """Returns NaN for zeros, and a second output with a branch on zeros."""

    def __init__(self, wrong: bool = True) -> None:
        super().__init__()
        self.wrong = wrong

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        largest = x.abs().amax()
        if self.wrong:
            return x / largest, x - 1 if bool(largest == 0) else x + 1
        return x / largest, torch.where(largest == 0, x - 1, x + 1)


class Output(OrderedDict[str, Any]):
    """An output as in diffusers, which PyTorch flattens without keys."""


pytree.register_pytree_node(
    Output,
    lambda output: (list(output.values()), list(output)),
    lambda values, names: Output(zip(names, values, strict=True)),
    serialized_type_name="tests.traps.Output",
)


class WithoutKeys(nn.Module):
    """Returns such an output."""

    def forward(self, x: Tensor) -> Output:
        return Output(sample=x * 2, noise=x - 1)
