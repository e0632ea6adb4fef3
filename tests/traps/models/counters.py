"""Models that count their calls: some take another branch after many of them."""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

#: The calls before the other branch: more than a proof makes.
LIMIT = 700


def _choose(x: Tensor, is_early: bool) -> Tensor:
    return x * 2 if is_early else x * 3


class Attribute(nn.Module):
    """Counts in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def forward(self, x: Tensor) -> Tensor:
        self.n += 1
        if self.n < LIMIT:
            return x * 2
        return x * 3


class Alternating(nn.Module):
    """Changes the rounding of the first late call, and the value of the second."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0
        self.limit = torch.tensor(1.0 + LIMIT)

    def forward(self, x: Tensor) -> Tensor:
        self.n += 1
        if self.n < float(self.limit):
            return x * 2
        return x * 2.0000002 if self.n % 2 else x * 3


class Private(nn.Module):
    """Counts in an attribute whose name begins with an underscore, in a layer."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._n = 0

        @property
        def is_early(self) -> bool:
            return self._n < LIMIT

        def forward(self, x: Tensor) -> Tensor:
            self._n += 1
            return x * 2 if self.is_early else x * 3

    def __init__(self) -> None:
        super().__init__()
        self.layer = self.Layer()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Seconds(nn.Module):
    """Adds a float in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def forward(self, x: Tensor) -> Tensor:
        self.time += 0.01
        return x * 3 if self.time > 7.5 else x * 2


class Remaining(nn.Module):
    """Counts down."""

    def __init__(self) -> None:
        super().__init__()
        self.left = LIMIT

    def forward(self, x: Tensor) -> Tensor:
        self.left -= 1
        return x * 2 if self.left else x * 3


class Exact(nn.Module):
    """Another branch in one call of many."""

    def __init__(self, period: int = 300) -> None:
        super().__init__()
        self.n, self.period = 0, period

    def forward(self, x: Tensor) -> Tensor:
        self.n += 1
        return x * 3 if self.n % self.period == 0 else x * 2


class Phase(nn.Module):
    """The branch changes a value that the next call reads."""

    def __init__(self) -> None:
        super().__init__()
        self.n, self.phase = 0, 2.0

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.phase
        self.n += 1
        if self.n > LIMIT:
            self.phase = 3.0
        return y


class Schedule(nn.Module):
    """Reads a factor by the number of calls: no branch."""

    def __init__(self) -> None:
        super().__init__()
        self.n, self.factors = 0, (2.0, 3.0)

    def forward(self, x: Tensor) -> Tensor:
        factor = self.factors[min(self.n // 500, 1)]
        self.n += 1
        return x * factor


class Stored(nn.Module):
    """Keeps its inputs in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.history.append(x.detach())
        return _choose(x, len(self.history) < LIMIT)


class Recent(nn.Module):
    """Keeps its inputs in a double-ended queue."""

    def __init__(self) -> None:
        super().__init__()
        self.history: deque[Tensor] = deque(maxlen=5000)

    def forward(self, x: Tensor) -> Tensor:
        self.history.append(x.detach())
        return _choose(x, len(self.history) < LIMIT)


class Joined(nn.Module):
    """Keeps rows in a tensor that grows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.zeros(0, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.rows = torch.cat((self.rows, x[:1].detach()))
        return _choose(x, self.rows.shape[0] < LIMIT)


class Table(nn.Module):
    """Counts in a value of a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = {"calls": 0}

    def forward(self, x: Tensor) -> Tensor:
        self.counts["calls"] += 1
        return _choose(x, self.counts["calls"] < LIMIT)


class Listed(nn.Module):
    """Counts in an item of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = [0]

    def forward(self, x: Tensor) -> Tensor:
        self.counts[0] += 1
        return _choose(x, self.counts[0] < LIMIT)


class Progress:
    """The calls of a model."""

    def __init__(self) -> None:
        self.calls = 0

    def advance(self) -> int:
        self.calls += 1
        return self.calls


class Held(nn.Module):
    """Counts in an object."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress()

    def forward(self, x: Tensor) -> Tensor:
        return _choose(x, self.progress.advance() < LIMIT)


class Iterated(nn.Module):
    """Counts by `itertools.count`."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = itertools.count()

    def forward(self, x: Tensor) -> Tensor:
        return _choose(x, next(self.counter) < LIMIT)


class Shared(nn.Module):
    """Counts in an attribute of its class."""

    calls: ClassVar[int] = 0

    def forward(self, x: Tensor) -> Tensor:
        Shared.calls += 1
        return _choose(x, Shared.calls < LIMIT)


_CALLS = 0


class Global(nn.Module):
    """Counts in a global variable."""

    def forward(self, x: Tensor) -> Tensor:
        globals()["_CALLS"] += 1
        return _choose(x, _CALLS < LIMIT)


def _build_counter() -> Callable[[], int]:
    calls = 0

    def count() -> int:
        nonlocal calls
        calls += 1
        return calls

    return count


class Closure(nn.Module):
    """Counts in a variable of a closure."""

    def __init__(self) -> None:
        super().__init__()
        self.count = _build_counter()

    def forward(self, x: Tensor) -> Tensor:
        return _choose(x, self.count() < LIMIT)


class Hooked(nn.Module):
    """Counts in a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Identity()
        count = _build_counter()

        def change(_module: nn.Module, _args: object, output: Tensor) -> Tensor:
            return _choose(output, count() < LIMIT)

        self.layer.register_forward_hook(change)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Kept(nn.Module):
    """Counts in a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = torch.zeros((), dtype=torch.int64)

    def forward(self, x: Tensor) -> Tensor:
        self.steps = self.steps + 1
        return _choose(x, int(self.steps) < LIMIT)


class Buffer(nn.Module):
    """Counts in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        return _choose(x, int(self.steps) < LIMIT)


class Selected(nn.Module):
    """Reads a buffer of calls in an operator: no branch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        return torch.where(self.steps < LIMIT, x * 2, x * 3)


class Logged(nn.Module):
    """Counts its calls for a message."""

    def __init__(self) -> None:
        super().__init__()
        self.n, self.messages = 0, list[str]()

    def forward(self, x: Tensor) -> Tensor:
        self.n += 1
        if self.n % 100 == 0:
            self.messages.append(f"{self.n} calls")
        if len(self.messages) > 10:
            self.messages.clear()
        return x * 2


class Rotary(nn.Module):
    """Keeps a table of positions for the longest input."""

    def __init__(self) -> None:
        super().__init__()
        self.max_seq_len_cached = 0
        self._table = torch.zeros(0)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > self.max_seq_len_cached:
            self.max_seq_len_cached = x.shape[0]
            self._table = torch.arange(x.shape[0], dtype=x.dtype).cos()
        return x * self._table[: x.shape[0], None]


class LazyMask(nn.Module):
    """Builds its mask in the first call, and keeps it by its size."""

    def __init__(self) -> None:
        super().__init__()
        self.mask: Tensor | None = None
        self._cache: dict[int, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        if self.mask is None:
            self.mask = torch.tensor([1.0, 0.0, 1.0, 0.0])
        if x.shape[0] not in self._cache:
            self._cache[x.shape[0]] = torch.ones(x.shape[0], 1)
        return x * self.mask * self._cache[x.shape[0]]


class Started(nn.Module):
    """Sets a flag in its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.is_warm, self.scale = False, 0.0

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_warm:
            self.scale, self.is_warm = 2.0, True
        return x * self.scale


class Normalized(nn.Module):
    """Spectral norm, whose vectors change in training only."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Ring(nn.Module):
    """Keeps its last inputs for a viewer, in a ring."""

    def __init__(self) -> None:
        super().__init__()
        self.position, self.slots = 0, [torch.zeros(0)] * 8

    def forward(self, x: Tensor) -> Tensor:
        self.slots[self.position] = x.detach()
        self.position = (self.position + 1) % 8
        return x * 2


@functools.lru_cache(maxsize=4)
def _build_table(size: int) -> Tensor:
    return torch.arange(float(size))


class Memoized(nn.Module):
    """Keeps tables by `functools.lru_cache`, which forgets the oldest one."""

    def forward(self, x: Tensor) -> Tensor:
        return x + _build_table(x.shape[0])[:, None]
