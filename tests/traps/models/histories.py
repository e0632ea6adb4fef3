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


class StaticCache(nn.Module):
    """Keeps a row at a position, and returns the sum of the rows up to it."""

    rows: Tensor

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        if kind == "attribute":
            self.rows = torch.zeros(8, 4)
        else:
            self.register_buffer("rows", torch.zeros(8, 4) if kind != "absent" else None)

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        places = torch.arange(8).unsqueeze(1)
        rows = torch.zeros(8, 4) if self.rows is None else self.rows
        if self.kind == "written":
            rows.copy_(torch.where(places == position, x, rows))
        else:
            self.rows = rows = torch.where(places == position, x, rows)
        return torch.where(places <= position, rows, torch.zeros(())).sum(0)


class PrivateCache(nn.Module):
    """Keeps a row at a position in an attribute of an object, whose names are private."""

    class _Rows:
        def __init__(self) -> None:
            self._rows = torch.zeros(8, 4)

    def __init__(self) -> None:
        super().__init__()
        self._kept = self._Rows()

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        places = torch.arange(8).unsqueeze(1)
        rows = torch.where(places == position, x, self._kept._rows)
        self._kept._rows = rows
        return torch.where(places <= position, rows, torch.zeros(())).sum(0)


class ScratchRows(nn.Module):
    """Writes a whole buffer before it reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(8, 4))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        places = torch.arange(8).unsqueeze(1)
        self.rows.copy_(torch.where(places == position, x, torch.zeros(())))
        return torch.where(places <= position, self.rows, torch.zeros(())).sum(0)


class HiddenState(nn.Module):
    """Begins with zeros where a flag is set, and with the last state elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 4)
        self.register_buffer("hidden", torch.zeros(1, 4))

    def forward(self, x: Tensor, begins: Tensor) -> Tensor:
        hidden = torch.where(begins, torch.zeros(()), self.hidden)
        self.hidden = self.cell(x, hidden.expand(x.shape[0], 4))[:1]
        return self.cell(x, hidden.expand(x.shape[0], 4))


class MovingAverage(nn.Module):
    """Returns the values less their average, which begins with those of step 0."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(4))

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        kept = torch.where(step == 0, x.mean(0), 0.9 * self.average + 0.1 * x.mean(0))
        self.average.copy_(kept)
        return x - kept


class LargestValue(nn.Module):
    """Divides by the largest magnitude of all calls, which is 3 at first."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("largest", torch.full((), 3.0))

    def forward(self, x: Tensor) -> Tensor:
        self.largest.copy_(torch.maximum(self.largest, x.abs().max()))
        return x / self.largest


class RingBuffer(nn.Module):
    """Keeps the last rows in turn, and adds the row before."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ring", torch.zeros(4, 4))

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        before = self.ring.index_select(0, ((index + 3) % 4).reshape(1)).clone()
        self.ring.index_copy_(0, (index % 4).reshape(1), x.unsqueeze(0))
        return x + before.squeeze(0)
