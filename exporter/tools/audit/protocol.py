"""What an audit is asked and what it answers, as JSON between two processes and in git.

In: nothing. Out: `Request`, `Tried`, `Fate`, `Survivor`, `Audit`. Imports nothing heavy: the
command and the report read these too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

from exporter.manifest import Device, ModelSpec
from exporter.record import CellId
from exporter.values import Items, Value

#: The share of the mutants that checks must catch.
THRESHOLD = 0.98


class Fate(StrEnum):
    """What became of a mutant."""

    CAUGHT = "caught"
    """A check, the load or the run said something else than pass."""
    EQUIVALENT = "equivalent"
    """Only what no output depends on was changed: shown on the graph."""
    SAME = "same"
    """Every output was the same to the bit on every further input."""
    WITHIN = "within"
    """Outputs moved on further inputs, but by no more than the contract allows."""
    SURVIVED = "survived"
    """An allowed input gives a wrong output, and no check noticed."""


class Request(Value):
    """One audit: the cell, and what to do with it."""

    cell: CellId
    spec: ModelSpec
    device: Device
    root: str
    """The project's root, absolute."""
    original: str
    """The model's folder under the build folder, absolute; only read."""
    folder: str
    """A private folder, absolute: the mutants are written here."""
    mutants: int
    seed: int
    entry: str = ""
    """The fingerprint of the entry that the file was made from."""


class Tried(Value):
    """One mutant and its fate."""

    kind: str
    """`weight`, `attribute`, `operator`, `edge`, `shape` or `header`."""
    change: str
    """One line: what was changed."""
    fate: Fate
    by: str = ""
    """Of a caught one, the check that said no, or `load`, `crash`, `timeout`, `raised`."""
    why: str = ""
    """Of a survivor, the input that shows it and by how much; of others, what was seen."""


class Tally(Value):
    """The mutants of one kind, by fate."""

    kind: str
    caught: int = 0
    equivalent: int = 0
    same: int = 0
    within: int = 0
    survived: int = 0


class Survivor(Value):
    """A change that no check noticed."""

    kind: str
    change: str
    why: str


class Audit(Value):
    """What came of an audit; the same file, seed and tools give the same."""

    format: Literal[1] = 1
    cell: CellId
    seed: int
    mutants: int
    """How many were made; fewer than asked where the file has no more places to change."""
    tools: dict[str, str]
    entry: str
    """The fingerprint of the entry whose file was audited."""
    tallies: Items[Tally]
    by: dict[str, int]
    """Caught mutants by the check that was the first to say no."""
    survivors: Items[Survivor]

    @property
    def caught(self) -> int:
        """Mutants that a check caught."""
        return sum(tally.caught for tally in self.tallies)

    @property
    def unchanged(self) -> int:
        """Mutants that gave the very same outputs."""
        return sum(tally.equivalent + tally.same for tally in self.tallies)

    @property
    def within(self) -> int:
        """Mutants that moved outputs by no more than the contract allows."""
        return sum(tally.within for tally in self.tallies)

    @property
    def share(self) -> float:
        """Caught ones among those that break the contract; 1 where none does."""
        return _share(self.caught, len(self.survivors))

    @property
    def share_of_moved(self) -> float:
        """Caught ones among those that move an output at all."""
        return _share(self.caught, len(self.survivors) + self.within)


def _share(caught: int, missed: int) -> float:
    return caught / (caught + missed) if caught + missed else 1.0


def audit_of(request: Request, tried: Iterable[Tried], tools: dict[str, str]) -> Audit:
    """Counts what came of each mutant."""
    results = tuple(tried)
    kinds = tuple(dict.fromkeys(item.kind for item in results))
    by = Counter(item.by for item in results if item.fate is Fate.CAUGHT)
    return Audit(
        cell=request.cell,
        seed=request.seed,
        mutants=len(results),
        tools=tools,
        entry=request.entry,
        tallies=tuple(_tally(kind, results) for kind in sorted(kinds)),
        by=dict(sorted(by.items())),
        survivors=tuple(
            Survivor(kind=item.kind, change=item.change, why=item.why)
            for item in results
            if item.fate is Fate.SURVIVED
        ),
    )


def _tally(kind: str, results: Iterable[Tried]) -> Tally:
    fates = Counter(item.fate.value for item in results if item.kind == kind)
    return Tally(kind=kind, **fates)
