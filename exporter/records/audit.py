"""The stored result of an audit: how many mutants of a file the checks caught."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import AliasChoices, Field

from exporter.core.frozen_model import FrozenModel, Items
from exporter.records.record import CellId

#: The default of the share of mutants that the checks must catch.
THRESHOLD = 0.98


class MutantOutcome(StrEnum):
    """The outcome of the checks of a mutant."""

    CAUGHT = "caught"
    """A check, the load or the run did not pass."""
    EQUIVALENT = "equivalent"
    """The graph shows that no output depends on the change."""
    SAME = "same"
    """All further inputs gave bitwise equal outputs."""
    WITHIN = "within"
    """Further inputs changed outputs, but within the limits of the contract."""
    SURVIVED = "survived"
    """An allowed input gives a wrong output, and all checks passed."""


class Tally(FrozenModel):
    """The number of mutants of one kind, by outcome."""

    kind: str
    caught: int = 0
    equivalent: int = 0
    same: int = 0
    within: int = 0
    survived: int = 0


class Survivor(FrozenModel):
    """A mutant that passed all checks."""

    kind: str
    change: str
    reason: str = Field(validation_alias=AliasChoices("reason", "why"))
    """Audits of format 1 call it `why`."""


class Audit(FrozenModel):
    """The result of an audit; it depends only on the file, the seed and the tools."""

    format: Literal[1, 2] = 2
    cell: CellId
    seed: int
    mutants: int
    """The number of mutants; lower than requested if the file has too few places to change."""
    tools: dict[str, str]
    entry: str
    """The fingerprint of the entry at the time of the audit."""
    tallies: Items[Tally]
    caught_by: dict[str, int] = Field(validation_alias=AliasChoices("caught_by", "by"))
    """Caught mutants by the first check that failed. Audits of format 1 call it `by`."""
    survivors: Items[Survivor]

    @property
    def caught(self) -> int:
        """The number of mutants that a check caught."""
        return sum(tally.caught for tally in self.tallies)

    @property
    def unchanged(self) -> int:
        """The number of mutants with bitwise equal outputs."""
        return sum(tally.equivalent + tally.same for tally in self.tallies)

    @property
    def within(self) -> int:
        """The number of mutants with outputs within the limits of the contract."""
        return sum(tally.within for tally in self.tallies)

    @property
    def share(self) -> float:
        """The caught share of the mutants that break the contract; 1 if there are none."""
        return _compute_share(self.caught, len(self.survivors))

    @property
    def share_of_moved(self) -> float:
        """The caught share of the mutants that change an output."""
        return _compute_share(self.caught, len(self.survivors) + self.within)


def _compute_share(caught: int, missed: int) -> float:
    return caught / (caught + missed) if caught + missed else 1.0
