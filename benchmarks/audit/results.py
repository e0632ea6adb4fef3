"""The results of an audit: how many mutants of a file the checks caught."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from exporter.records.record import CellId


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantResult:
    """One mutant and its outcome."""

    kind: str
    """`weight`, `attribute`, `operator`, `edge`, `shape`, `header` or `condition`."""
    change: str
    """The change, in one line."""
    outcome: MutantOutcome
    check: str = ""
    """If it was caught, the check that failed, or `load`, `crash`, `timeout`, `raised`."""
    reason: str = ""
    """If it survived, the input that shows the error and its size; otherwise the observation."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit of a cell; it depends only on the file, the seed and the tools."""

    cell: CellId
    results: tuple[MutantResult, ...]
    """Fewer than requested if the file has too few places to change."""

    @property
    def survivors(self) -> tuple[MutantResult, ...]:
        """The mutants that passed all checks."""
        return tuple(each for each in self.results if each.outcome is MutantOutcome.SURVIVED)

    @property
    def share(self) -> float:
        """The caught share of the mutants that break the contract; 1 if there are none."""
        return self._compute_share(MutantOutcome.SURVIVED)

    @property
    def share_of_moved(self) -> float:
        """The caught share of the mutants that change an output."""
        return self._compute_share(MutantOutcome.SURVIVED, MutantOutcome.WITHIN)

    def count_outcomes(self) -> dict[str, Counter[MutantOutcome]]:
        """Return the number of mutants of each kind, by outcome."""
        counts: dict[str, Counter[MutantOutcome]] = {}
        for each in sorted(self.results, key=lambda result: result.kind):
            counts.setdefault(each.kind, Counter())[each.outcome] += 1
        return counts

    def count_checks(self) -> dict[str, int]:
        """Return the number of caught mutants by the first check that failed."""
        caught = (each for each in self.results if each.outcome is MutantOutcome.CAUGHT)
        return dict(sorted(Counter(each.check for each in caught).items()))

    def _compute_share(self, *missed: MutantOutcome) -> float:
        counts = Counter(each.outcome for each in self.results)
        caught = counts[MutantOutcome.CAUGHT]
        total = caught + sum(counts[outcome] for outcome in missed)
        return caught / total if total else 1.0
