"""Results against the accepted baseline: what changed, and so what somebody must accept or mend.

In: a `Baseline`, a `RunRecord`, the ids of all cells that the manifests promise, and the policy.
Out: `GateFinding`s. Pure.

The gate walks the union of baseline, results and promises: a cell that vanishes from one of them
is a finding, for a gate that looks at new results alone cannot see what is no longer there.
Whatever the baseline does not accept is a finding, good news too: a fix that nobody recorded
could be lost again without a word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from exporter.core.sanitize import one_line, truncate
from exporter.gate.drift import Drift, drifts, raised_lowest
from exporter.gate.finding import (
    NO_RESULT,
    NOT_ACCEPTED,
    GateFinding,
    Kind,
)
from exporter.manifest import DEFAULT_GATE, Gate, GatePolicy
from exporter.planning.expectations import ENDED
from exporter.records.baseline import (
    Baseline,
    CellOutcome,
    outcomes_of,
    parse_cell,
)
from exporter.records.record import (
    CellId,
    Record,
    RunRecord,
    Stage,
    Status,
)

_MESSAGE_LENGTH = 300
_STAGES = {stage: rank for rank, stage in enumerate(Stage)}
#: Where a cell is as accepted, or merely made another way, its figures can be compared.
_COMPARABLE = (None, Kind.REROUTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Now:
    """What holds today, by the text of the cell."""

    outcomes: Mapping[str, CellOutcome]
    promised: frozenset[str]
    records: Mapping[str, Record] = field(default_factory=dict)
    is_promised: bool = True
    """Whether manifests say what is promised."""


def judge(
    baseline: Baseline, run: RunRecord, planned: Collection[str], gate: Gate = DEFAULT_GATE
) -> tuple[GateFinding, ...]:
    """Compares every cell of baseline, results and manifests.

    Args:
        baseline: What was accepted.
        run: What was found.
        planned: The text of every cell that the manifests promise today, selected or not.
        gate: What becomes of each kind of finding.

    Returns:
        The findings, what blocks first; empty where everything is as accepted. What the policy
        ignores is left out.

    Raises:
        ExporterError: UNREADABLE, where the run has two records for a cell.
    """
    now = _Now(outcomes=outcomes_of(run), promised=frozenset(planned), records=run.by_cell())
    return _judged(baseline.by_cell(), now, gate)


def differences(
    before: Baseline, after: Baseline, records: Mapping[str, Record] | None = None
) -> tuple[GateFinding, ...]:
    """Compares any two sets of outcomes by the same rules; the second promises what it holds.

    Args:
        before: What is compared with.
        after: What is compared.
        records: Of `after`, by cell, where they are known: they say why.
    """
    outcomes = after.by_cell()
    now = _Now(
        outcomes=outcomes,
        promised=frozenset(outcomes),
        records=records or {},
        is_promised=False,
    )
    return tuple(
        replace(each, before=NO_RESULT) if each.before == NOT_ACCEPTED else each
        for each in _judged(before.by_cell(), now, DEFAULT_GATE)
    )


def _judged(accepted: Mapping[str, CellOutcome], now: _Now, gate: Gate) -> tuple[GateFinding, ...]:
    cells = accepted.keys() | now.outcomes.keys() | now.promised
    ids = {cell: parse_cell(cell) for cell in cells}
    policies = {model: gate.of(model) for model in {id.model for id in ids.values()}}
    found = [
        finding
        for cell, id in ids.items()
        for finding in _of_cell(cell, accepted.get(cell), now, policies[id.model])
    ]
    held = [outcome for cell, outcome in now.outcomes.items() if cell in now.promised]
    found += [_finding(drift, cell) for cell, drift in raised_lowest(accepted.values(), held)]
    acted = (_with_action(finding, policies[finding.cell.model]) for finding in found)
    return tuple(sorted((each for each in acted if each), key=lambda finding: finding.sort_key))


def _with_action(finding: GateFinding, policy: GatePolicy) -> GateFinding | None:
    action = finding.kind.action(policy)
    return None if action == "ignore" else replace(finding, action=action)


def _of_cell(
    cell: str, before: CellOutcome | None, now: _Now, policy: GatePolicy
) -> Iterator[GateFinding]:
    """Everything that is to be said of one cell."""
    after, record = now.outcomes.get(cell), now.records.get(cell)
    id = parse_cell(cell)
    # What the manifests dropped is lost; an old result does not bring it back.
    is_lost = before is not None and cell not in now.promised
    kind = Kind.MISSING if is_lost else _kind(before, after)
    if kind is Kind.NEWLY_RED and record and record.expectation.startswith(ENDED):
        kind = Kind.EXPIRED
    if kind is not None:
        yield GateFinding(
            kind=kind,
            cell=id,
            before=_text(before, after, kind) if before else NOT_ACCEPTED,
            after=_text(after, before, kind) if after else NO_RESULT,
            message=_message(cell, kind, record, now),
        )
    if is_lost or after is None:
        return
    if after.flaky and not (before and before.flaky):
        said = str(before) if before else NOT_ACCEPTED
        message = one_line(record.flaky) if record else ""
        yield GateFinding(kind=Kind.FLAKY, cell=id, before=said, after=str(after), message=message)
    if before and kind in _COMPARABLE:
        yield from (_finding(drift, id) for drift in drifts(before, after, policy))


def _finding(drift: Drift, cell: CellId) -> GateFinding:
    return GateFinding(kind=drift.kind, cell=cell, before=drift.before, after=drift.after)


def _text(outcome: CellOutcome, other: CellOutcome | None, kind: Kind) -> str:
    """The outcome; of another route, the route, since the rest is the same."""
    if kind is not Kind.REROUTED or other is None:
        return str(outcome)
    is_capture_alone = outcome.exporter == other.exporter
    return f"{outcome} by {outcome.exporter}" + (
        f", capture {outcome.capture}" if is_capture_alone else ""
    )


def _message(cell: str, kind: Kind, record: Record | None, now: _Now) -> str:
    if kind is Kind.MISSING:
        if cell in now.promised:
            return "the manifests promise it and there is no result: run `exporter export`"
        return "the manifests no longer promise it" if now.is_promised else ""
    if record is None:
        return ""
    said = f"{record.expectation}: {record.message}" if kind is Kind.EXPIRED else record.message
    return truncate(one_line(said), _MESSAGE_LENGTH)


def _kind(before: CellOutcome | None, after: CellOutcome | None) -> Kind | None:
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
    return Kind.REROUTED if _is_rerouted(before, after) else None


def _is_rerouted(before: CellOutcome, after: CellOutcome) -> bool:
    """Whether both made a file, in two ways."""
    pairs = ((before.exporter, after.exporter), (before.capture, after.capture))
    return any(old != new and old and new for old, new in pairs)


def _kind_of_new(after: CellOutcome) -> Kind:
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


def _kind_of_change(before: CellOutcome, after: CellOutcome) -> Kind:
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


def _kind_of_failure(before: CellOutcome, after: CellOutcome) -> Kind:
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


def _distance(before: CellOutcome, after: CellOutcome) -> int:
    """Stages lost since `before`; 0 where one of them names none."""
    if before.stage is None or after.stage is None:
        return 0
    return _STAGES[before.stage] - _STAGES[after.stage]
