"""Models that change in a call: their weights, global variables, classes, closures and caches."""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

_KEPT: dict[str, Tensor] = {}
_TABLES: dict[int, Tensor] = {}


class GlobalValue(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + _KEPT.setdefault("mean", x.mean())


class GlobalTable(nn.Module):
    """Keeps a table in a global variable, the same for all inputs."""

    def forward(self, x: Tensor) -> Tensor:
        return x + _TABLES.setdefault(x.shape[1], torch.linspace(0, 1, x.shape[1]))


class ClassValue(nn.Module):
    mean: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if ClassValue.mean is None:
            ClassValue.mean = x.mean()
        return x + ClassValue.mean


def _make_offset() -> Callable[[Tensor], Tensor]:
    kept: list[Tensor] = []

    def offset(x: Tensor) -> Tensor:
        if not kept:
            kept.append(x.mean())
        return kept[0]

    return offset


class ClosureValue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.offset = _make_offset()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.offset(x)


class _Key:
    """An input that is equal to every other one of its shape."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other.x.shape == self.x.shape

    def __hash__(self) -> int:
        return hash(self.x.shape)


@functools.lru_cache
def _compute_mean(key: _Key) -> Tensor:
    return key.x.mean()


class CacheValue(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + _compute_mean(_Key(x))


class BufferValue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if not self.mean.any():
            self.mean = x.mean()
        return x + self.mean


class LimitedRows(nn.Module):
    """Scales the rows that it reads if their norm exceeds the limit."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.rows = nn.Embedding(8, 4, max_norm=limit)

    def forward(self, index: Tensor) -> Tensor:
        return self.rows(index)


class RunningMaximum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.largest = nn.Parameter(torch.zeros(()), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        self.largest.data = torch.maximum(self.largest.data, x.max())
        return x / self.largest


class ScaledByDraw(nn.Module):
    """Has a factor from a generator of numbers."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        draws = {
            "system": lambda: float(os.urandom(2)[0] * 256 + os.urandom(1)[0]),
            "python": random.random,
            "numpy": lambda: float(np.random.rand()),
        }
        self.register_buffer("factor", torch.tensor(draws[kind]()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class UnreadDraw(nn.Module):
    """Has a buffer from the system's random numbers, which no output needs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("unread", torch.tensor(list(os.urandom(8))))

    def forward(self, x: Tensor) -> Tensor:
        return x * 2
