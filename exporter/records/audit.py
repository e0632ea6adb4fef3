"""Split off; to be described."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from exporter.core.frozen_model import FrozenModel, Items
from exporter.records.record import CellId

#: The share of the mutants that checks must catch.
THRESHOLD = 0.98


class MutantOutcome(StrEnum):
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


class Tally(FrozenModel):
    """The mutants of one kind, by fate."""

    kind: str
    caught: int = 0
    equivalent: int = 0
    same: int = 0
    within: int = 0
    survived: int = 0


class Survivor(FrozenModel):
    """A change that no check noticed."""

    kind: str
    change: str
    why: str


class Audit(FrozenModel):
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
