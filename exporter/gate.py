"""Results against the committed baseline: what changed, and so what somebody must accept or mend.

In: a `Baseline`, a `RunRecord`, and the ids of all cells that the manifests promise.
Out: `Finding`s. Pure.

The gate walks the union of baseline, results and promises: a cell that vanishes from one of them
is a finding, for a gate that looks at new results alone cannot see what is no longer there.
Whatever the baseline does not accept is a finding, good news too: a fix that nobody recorded
could be lost again without a word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from exporter.baseline import Baseline, Outcome, outcomes_of, parse_cell
from exporter.record import CellId, RunRecord, Stage, Status
from exporter.untrusted import one_line

#: What `Finding.before` and `Finding.after` say where there is no outcome.
NOT_ACCEPTED = "not in the baseline"
NO_RESULT = "no result"
_MESSAGE_LENGTH = 300


class Kind(StrEnum):
    """How a cell differs from its accepted outcome; the worst first."""

    NEWLY_RED = "newly red"
    MISSING = "missing"
    """Accepted or promised, and without a result; or accepted and no longer promised."""
    WORSE = "worse failure"
    """Red before and now: at an earlier stage, or dead where it only failed."""
    XPASS = "passes unexpectedly"
    """The manifest still expects a failure."""
    NEWLY_UNAVAILABLE = "newly unavailable"
    NEWLY_SKIPPED = "newly skipped"
    NEWLY_EXPECTED = "newly expected to fail"
    """Was not `xfail` and is now."""
    NEW_RED = "new cell, red"
    CHANGED = "failure changed"
    """Another check or kind of failure, no better and no worse."""
    BETTER = "further than before"
    """Red before and now: at a later stage, or failing where it died."""
    REROUTED = "another exporter"
    FIXED = "fixed"
    NEW_GREEN = "new cell, green"


_RANK = {kind: rank for rank, kind in enumerate(Kind)}
_STAGES = {stage: rank for rank, stage in enumerate(Stage)}
_NEWS = (Kind.BETTER, Kind.FIXED, Kind.NEW_GREEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cell that is not as it was accepted."""

    kind: Kind
    cell: CellId
    before: str
    """`pass`, `error at convert`, `fail at parity (axes)`, or `NOT_ACCEPTED`."""
    after: str
    """The same, or `NO_RESULT`."""
    message: str = ""
    """One line: what the record says, or what to do."""

    @property
    def blocks(self) -> bool:
        """Whether a merge must stop for it: every finding does, until it is accepted."""
        return True

    @property
    def is_good_news(self) -> bool:
        """Whether accepting it is all there is to do."""
        return self.kind in _NEWS

    @property
    def sort_key(self) -> tuple[int, tuple[str, int, str]]:
        """The worst kind first, then by cell."""
        return (_RANK[self.kind], self.cell.sort_key)


def judge(baseline: Baseline, run: RunRecord, planned: Collection[str]) -> tuple[Finding, ...]:
    """Compares every cell of baseline, results and manifests.

    Args:
        baseline: What was accepted.
        run: What was found.
        planned: The text of every cell that the manifests promise today, selected or not.

    Returns:
        The findings, the worst first; empty where everything is as accepted.

    Raises:
        ExporterError: UNREADABLE, where the run has two records for a cell.
    """
    accepted, found = baseline.by_cell(), outcomes_of(run)
    messages = {str(record.cell): _said(record.message) for record in run.records}
    promised = frozenset(planned)
    findings = []
    for cell in accepted.keys() | found.keys() | promised:
        before, after = accepted.get(cell), found.get(cell)
        kind = Kind.MISSING if _is_lost(cell, accepted, promised) else _kind(before, after)
        if kind is None:
            continue
        message = _absence(cell, promised) if kind is Kind.MISSING else messages[cell]
        findings.append(
            Finding(
                kind=kind,
                cell=parse_cell(cell),
                before=str(before) if before else NOT_ACCEPTED,
                after=str(after) if after else NO_RESULT,
                message=message,
            )
        )
    return tuple(sorted(findings, key=lambda finding: finding.sort_key))


def _is_lost(cell: str, accepted: Collection[str], promised: Collection[str]) -> bool:
    """Whether the manifests dropped an accepted cell; an old result does not bring it back."""
    return cell in accepted and cell not in promised


def _absence(cell: str, promised: Collection[str]) -> str:
    if cell in promised:
        return "the manifests promise it and there is no result: run `nox -s export`"
    return "the manifests no longer promise it"


def _said(message: str) -> str:
    line = one_line(message)
    return line if len(line) <= _MESSAGE_LENGTH else line[: _MESSAGE_LENGTH - 1] + "…"


def _kind(before: Outcome | None, after: Outcome | None) -> Kind | None:
    """How `after` differs from `before`; None where it is as accepted."""
    if after is None:
        return Kind.MISSING
    if before is None:
        return _kind_of_new(after)
    if before.status is not after.status:
        return _kind_of_change(before, after)
    if after.status in (Status.SKIP, Status.UNAVAILABLE):
        return None
    if (before.stage, before.check) != (after.stage, after.check):
        return _kind_of_failure(before, after) if after.status.is_red else Kind.CHANGED
    if before.exporter != after.exporter and before.exporter and after.exporter:
        return Kind.REROUTED
    return None


def _kind_of_new(after: Outcome) -> Kind:
    match after.status:
        case Status.PASS | Status.XFAIL:
            return Kind.NEW_GREEN
        case Status.SKIP:
            return Kind.NEWLY_SKIPPED
        case Status.UNAVAILABLE:
            return Kind.NEWLY_UNAVAILABLE
        case Status.XPASS:
            return Kind.XPASS
        case _:
            return Kind.NEW_RED


def _kind_of_change(before: Outcome, after: Outcome) -> Kind:
    """The kind where the status is another one."""
    match after.status:
        case Status.PASS:
            return Kind.FIXED
        case Status.XFAIL:
            return Kind.NEWLY_EXPECTED
        case Status.XPASS:
            return Kind.XPASS
        case Status.SKIP:
            return Kind.NEWLY_SKIPPED
        case Status.UNAVAILABLE:
            return Kind.NEWLY_UNAVAILABLE
        case (
            Status.FAIL
            | Status.ERROR
            | Status.CRASH
            | Status.TIMEOUT
            | Status.KILLED
            | Status.INCONCLUSIVE
        ):
            return _kind_of_failure(before, after) if before.status.is_red else Kind.NEWLY_RED
        case _:
            assert_never(after.status)


def _kind_of_failure(before: Outcome, after: Outcome) -> Kind:
    """The kind where both are red: worse if anything is, better only if nothing is."""
    steps = (
        _gravity(after.status) - _gravity(before.status),
        _distance(before, after),
    )
    if max(steps) > 0:
        return Kind.WORSE
    return Kind.BETTER if min(steps) < 0 else Kind.CHANGED


def _gravity(status: Status) -> int:
    """How bad a red status is: a worker that died says less than a stage that raised."""
    match status:
        case Status.CRASH | Status.TIMEOUT | Status.KILLED:
            return 4
        case Status.ERROR:
            return 3
        case Status.FAIL:
            return 2
        case Status.INCONCLUSIVE:
            return 1
        case _:
            return 0


def _distance(before: Outcome, after: Outcome) -> int:
    """Stages lost since `before`; 0 where one of them names none."""
    if before.stage is None or after.stage is None:
        return 0
    return _STAGES[before.stage] - _STAGES[after.stage]


def blocking(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings for which a merge must stop."""
    return tuple(finding for finding in findings if finding.blocks)
