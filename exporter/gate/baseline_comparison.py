"""Comparison of results with the accepted baseline.

The gate visits the union of baseline, results and promises. If a cell is missing in one source,
that is a finding: new results alone cannot show a missing cell. An improvement is a finding too,
because an unrecorded fix can be lost again without notice.

A branch must not be able to weaken its own gate. Baseline and policy are therefore those of the
revision, and a weaker contract is a finding. An improvement is no finding if the branch's baseline
accepts it. For other findings that depends on `accepted_here` in the revision's policy, and the
baseline must contain a reason.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from exporter.core.device_name import DeviceName
from exporter.core.text import join_lines, shorten, truncate
from exporter.gate.accepted_contract import (
    find_state_changes,
)
from exporter.gate.finding import (
    NO_RESULT,
    NOT_ACCEPTED,
    GateFinding,
)
from exporter.manifest import DEFAULT_GATE, FindingKind, Gate, GatePolicy
from exporter.manifest.syntax.releases import Release, find_first_release, format_release
from exporter.records.baseline import (
    AcceptedModel,
    Baseline,
    CellOutcome,
    build_baseline,
    extract_outcomes,
)
from exporter.records.record import UNPROVED_PREFIX, CellId, Record, RunRecord, Stage, Status

#: Bytes. Names and versions inside a file may grow by this much without a finding.
_FILE_SLACK = 4096
#: Errors up to this share of the allowed error are never drift.
_ERROR_FLOOR = 0.1
#: The units of measured ratios.
_RUN, _LOAD = "times PyTorch's time", "times the load time of one node"
_FILE = "times the size of the file"
_WORKING = (Status.PASS, Status.XPASS)


def find_drift(
    before: CellOutcome, after: CellOutcome, policy: GatePolicy
) -> Iterator[GateFinding]:
    """Yield each figure of the file that is worse than the accepted one."""
    old, new = before.figures, after.figures
    if old is None or new is None:
        return

    def build(kind: FindingKind, *texts: str) -> GateFinding:
        return GateFinding(kind=kind, cell=before.cell, before=texts[0], after=texts[1])

    if old.thorough and not new.thorough:
        yield build(FindingKind.RELAXED, "thorough: true", "thorough: false")
    if (
        old.error is not None
        and new.error is not None
        and new.is_short >= old.is_short  # the full proof has more samples
        and new.error > max(old.error * policy.find_limit(FindingKind.ERROR_GROWN), _ERROR_FLOOR)
    ):
        texts = [f"{figures.error:g} of the tolerance" for figures in (old, new)]
        yield build(FindingKind.ERROR_GROWN, *texts)
    largest = old.bytes * policy.find_limit(FindingKind.FILE_GROWN)
    if new.bytes > max(largest, old.bytes + _FILE_SLACK):
        yield build(FindingKind.FILE_GROWN, *(f"{each.bytes:,} bytes" for each in (old, new)))
    if new.nodes > old.nodes * policy.find_limit(FindingKind.NODES_GROWN):
        yield build(FindingKind.NODES_GROWN, *(f"{each.nodes} nodes" for each in (old, new)))
    for kind, ratio, grown, unit in (
        (FindingKind.LATENCY_GROWN, old.latency, new.latency, _RUN),
        (FindingKind.LOAD_GROWN, old.load, new.load, _LOAD),
        (FindingKind.MEMORY_GROWN, old.memory, new.memory, _FILE),
    ):
        if ratio and grown and grown > ratio * policy.find_limit(kind):
            yield build(kind, f"{ratio:g} {unit}", f"{grown:g} {unit}")
    if set(new.domains) - set(old.domains):
        texts = [", ".join(figures.domains) or "only ONNX's own" for figures in (old, new)]
        yield build(FindingKind.NEW_DOMAIN, *texts)
    first, now = (find_first_release(before.cell.opset, each.ir_version) for each in (old, new))
    if first is not None and (now is None or now > first):
        text = format_release(now) if now else "newer than every known release"
        yield build(FindingKind.FLOOR_RAISED, format_release(first), text)


def has_same_figures(before: CellOutcome, after: CellOutcome, policy: GatePolicy) -> bool:
    """Return whether neither outcome is drift in comparison with the other."""
    old, new = before.figures, after.figures
    if (old is None) is not (new is None):
        return False
    # An older version did not store it.
    if old and new and old.largest_error is None and new.largest_error is not None:
        return False
    drift = (*find_drift(before, after, policy), *find_drift(after, before, policy))
    return not drift


def find_lowest_opsets(
    statuses: Mapping[CellId, Status | None],
) -> Mapping[tuple[str, DeviceName], int]:
    """Return the lowest opset from which on all cells pass, by model and device.

    Returns:
        No entry for a model if its highest opset does not pass. A foreseen failure is green but
        does not pass.
    """
    lowest = {}
    failing = set[tuple[str, DeviceName]]()
    for cell in sorted(statuses, key=lambda cell: cell.opset, reverse=True):
        key = (cell.model, cell.device)
        if statuses[cell] not in _WORKING:
            failing.add(key)
        elif key not in failing:
            lowest[key] = cell.opset
    return lowest


def find_raised_opsets(
    before: Iterable[CellOutcome], after: Iterable[CellOutcome]
) -> Iterator[GateFinding]:
    """Yield the models that need a higher opset now, with the cell of the old lowest opset."""
    current = find_lowest_opsets({each.cell: each.status for each in after})
    known = find_lowest_opsets({each.cell: each.status for each in before})
    for (model_id, device_name), old in known.items():
        new = current.get((model_id, device_name))
        # If no opset passes, the cells are red or missing and have findings of their own.
        if new is not None and new > old:
            yield GateFinding(
                kind=FindingKind.LOWEST_RAISED,
                cell=CellId(model=model_id, opset=old, device=device_name),
                before=f"from opset {old}",
                after=f"from opset {new}",
            )


#: Characters.
_MESSAGE_LENGTH = 600
#: ONNX Runtime's file, line and function before a reason.
_SIGNATURE = re.compile(r"\S+\.(?:cc|h|cpp):\d+ [^()]*\([^()]*\)(?: const)? ")
_STAGES = {stage: rank for rank, stage in enumerate(Stage)}
#: The severity of red statuses. A crash is less informative than an exception.
_SEVERITY = {
    Status.CRASH: 4,
    Status.TIMEOUT: 4,
    Status.KILLED: 4,
    Status.ERROR: 3,
    Status.FAIL: 2,
    Status.INCONCLUSIVE: 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _CurrentResults:
    """The current outcomes, records and promises."""

    outcomes: Mapping[CellId, CellOutcome]
    promised: frozenset[CellId]
    records: Mapping[CellId, Record] = field(default_factory=dict)
    states: Mapping[str, AcceptedModel] = field(default_factory=dict)
    has_manifests: bool = True
    """Whether manifests declare the promised cells."""


def compare_results(
    baseline: Baseline,
    run: RunRecord,
    promised: Collection[CellId],
    gate: Gate = DEFAULT_GATE,
    states: Mapping[str, AcceptedModel] = {},
) -> tuple[GateFinding, ...]:
    """Compare every cell of baseline, results and manifests.

    `promised` has every cell of the manifests, selected or not. `states` are the current ones. The
    blocking findings are first; kinds that the policy ignores are not included.

    Raises:
        ExporterError: UNREADABLE, if the run has two records for a cell.
    """
    current = _CurrentResults(
        outcomes=extract_outcomes(run),
        promised=frozenset(promised),
        records=run.by_cell(),
        states=states,
    )
    return _compare(baseline, current, gate)


def compare_baselines(
    before: Baseline,
    after: Baseline,
    records: Mapping[CellId, Record] | None = None,
    gate: Gate = DEFAULT_GATE,
) -> tuple[GateFinding, ...]:
    """Compare two sets of outcomes; the cells of `after` count as promised."""
    outcomes = after.by_cell()
    current = _CurrentResults(
        outcomes=outcomes,
        promised=frozenset(outcomes),
        records=records or {},
        states=after.models,
        has_manifests=False,
    )
    return tuple(
        replace(each, before=NO_RESULT) if each.before == NOT_ACCEPTED else each
        for each in _compare(before, current, gate)
    )


def list_accepted(before: Baseline, after: Baseline) -> tuple[GateFinding, ...]:
    """Return the differences between two baselines with the reasons of the second one."""
    # A file with the same content is parsed once, and has no difference.
    same = {name for name, each in after.models.items() if before.models.get(name) is each}
    before, after = (
        Baseline(models={name: each for name, each in side.models.items() if name not in same})
        for side in (before, after)
    )
    texts = {each.cell: each.reason for each in after.cells} | after.dropped
    initial = {model_id for model_id, each in after.models.items() if each.weights == "initial"}
    for cell in texts.keys() - before.by_cell().keys():
        if cell.model in initial:
            texts[cell] = "; ".join(filter(None, ("initial weights", texts[cell])))
    current = _CurrentResults(
        outcomes=after.by_cell(), promised=frozenset(after.by_cell()), states=after.models
    )
    return tuple(
        replace(each, message=texts.get(each.cell, ""), action="ignore")
        for each in _compare(before, current, DEFAULT_GATE)
    )


def _compare(baseline: Baseline, current: _CurrentResults, gate: Gate) -> tuple[GateFinding, ...]:
    accepted = baseline.by_cell()
    cells = accepted.keys() | current.outcomes.keys() | current.promised
    policies = {model_id: gate.find_policy(model_id) for model_id in {cell.model for cell in cells}}
    outcomes = [each for cell, each in current.outcomes.items() if cell in current.promised]
    findings = [
        finding
        for cell in cells
        for finding in _compare_cell(cell, accepted.get(cell), current, policies[cell.model])
    ]
    remaining = [each for cell, each in accepted.items() if cell in current.promised]
    findings += find_raised_opsets(
        remaining if current.has_manifests else accepted.values(), outcomes
    )
    findings += find_state_changes(baseline, current.states, current.promised, gate)
    judged = (
        replace(each, action=policies[each.cell.model].find_action(each.kind)) for each in findings
    )
    return tuple(
        sorted((each for each in judged if each.action != "ignore"), key=lambda each: each.sort_key)
    )


def _compare_cell(
    cell: CellId, before: CellOutcome | None, current: _CurrentResults, policy: GatePolicy
) -> Iterator[GateFinding]:
    after, record = current.outcomes.get(cell), current.records.get(cell)
    # If no manifest promises the cell, it is removed, even if an old result exists.
    is_dropped = before is not None and cell not in current.promised
    kind = _classify(before, after)
    if is_dropped:
        kind = FindingKind.REMOVED if current.has_manifests else FindingKind.MISSING
    if kind is not None:
        yield GateFinding(
            kind=kind,
            cell=cell,
            before=_format_outcome(before, after, kind) if before else NOT_ACCEPTED,
            after=_format_outcome(after, before, kind) if after else NO_RESULT,
            message=_explain(cell, kind, record, current),
        )
    if is_dropped or after is None:
        return
    if after.flaky and not (before and before.flaky):
        yield GateFinding(
            kind=FindingKind.FLAKY,
            cell=cell,
            before=str(before) if before else NOT_ACCEPTED,
            after=str(after),
            message=join_lines(record.flaky) if record else "",
        )
    # Figures are comparable only if the verdict is the same.
    if before and kind in (None, FindingKind.REROUTED):
        yield from find_drift(before, after, policy)


def _format_outcome(outcome: CellOutcome, other: CellOutcome | None, kind: FindingKind) -> str:
    """Return the outcome as text, with its route if the routes are the difference."""
    if kind is not FindingKind.REROUTED or other is None:
        return str(outcome)
    capture = f", capture {outcome.capture}" if outcome.exporter == other.exporter else ""
    return f"{outcome} by {outcome.exporter}{capture}"


def _explain(
    cell: CellId, kind: FindingKind, record: Record | None, current: _CurrentResults
) -> str:
    if kind is FindingKind.REMOVED:
        return "no readable manifest contains the cell any more"
    if kind is FindingKind.MISSING and cell in current.promised:
        return "promised by a manifest, but without a result; run `exporter export`"
    if record is None:
        return ""
    if kind in (FindingKind.NEW_GREEN, FindingKind.FIXED):
        unproved = [note for note in record.notes if note.startswith(UNPROVED_PREFIX)]
        weights = f"weights: {record.initial_weights}" if record.initial_weights else ""
        texts = (record.message, weights, *unproved)
        return truncate("; ".join(filter(None, texts)), _MESSAGE_LENGTH)
    # The signature of a C++ function takes the place of the reason, which is often last.
    return shorten(_SIGNATURE.sub("", join_lines(record.message)), _MESSAGE_LENGTH)


def find_first_releases(outcomes: Iterable[CellOutcome]) -> dict[str, Release]:
    """Return the oldest ONNX Runtime that loads a proved file of a model, by model."""
    lowest: dict[str, Release] = {}
    for each in outcomes:
        figures = each.figures if each.status in _WORKING else None
        release = figures and find_first_release(each.cell.opset, figures.ir_version)
        if release:
            lowest[each.cell.model] = min(release, lowest.get(each.cell.model, release))
    return lowest


def _classify(before: CellOutcome | None, after: CellOutcome | None) -> FindingKind | None:
    """Return the kind of the difference, or None if the outcome is as accepted."""
    if after is None:
        return FindingKind.MISSING
    if before is None or before.status is not after.status:
        return _classify_new_status(before, after)
    if after.status in (Status.SKIP, Status.UNAVAILABLE):
        return None
    is_same_stage = before.stage is after.stage
    if not is_same_stage or set(before.failed_checks) != set(after.failed_checks):
        return _compare_failures(before, after) if after.status.is_red else FindingKind.CHANGED
    routes = ((before.exporter, after.exporter), (before.capture, after.capture))
    is_rerouted = any(old != new and old and new for old, new in routes)
    return FindingKind.REROUTED if is_rerouted else None


def _classify_new_status(before: CellOutcome | None, after: CellOutcome) -> FindingKind | None:
    """Return the kind for a new cell, or for a cell with a different status; None if it is none."""
    match after.status:
        case Status.PASS:
            return FindingKind.FIXED if before else FindingKind.NEW_GREEN
        case Status.XFAIL:
            return FindingKind.NEWLY_EXPECTED if before else FindingKind.NEW_GREEN
        case Status.XPASS:
            return FindingKind.XPASS
        case Status.SKIP:
            return FindingKind.NEWLY_SKIPPED
        case Status.UNAVAILABLE:  # a skipped cell had no proof that can be lost
            was_skipped = before is not None and before.status is Status.SKIP
            return None if was_skipped else FindingKind.NEWLY_UNAVAILABLE
        case (
            Status.FAIL
            | Status.ERROR
            | Status.CRASH
            | Status.TIMEOUT
            | Status.KILLED
            | Status.INCONCLUSIVE
        ):
            if before is None:
                return FindingKind.NEW_RED
            is_red = before.status.is_red
            return _compare_failures(before, after) if is_red else FindingKind.NEWLY_RED
        case _:
            assert_never(after.status)


def _compare_failures(before: CellOutcome, after: CellOutcome) -> FindingKind:
    """Compare two red outcomes by severity, by stage and by the checks that fail in one stage.

    Returns:
        WORSE if one criterion is worse, BETTER if one is better and none is worse, else CHANGED.
    """
    severity = _SEVERITY.get(after.status, 0) - _SEVERITY.get(before.status, 0)
    lost_stages = 0
    if before.stage is not None and after.stage is not None:
        lost_stages = _STAGES[before.stage] - _STAGES[after.stage]
    failed = 0
    if before.stage is after.stage:
        old, new = set(before.failed_checks), set(after.failed_checks)
        failed = (old < new) - (new < old)
    if max(severity, lost_stages, failed) > 0:
        return FindingKind.WORSE
    return FindingKind.BETTER if min(severity, lost_stages, failed) < 0 else FindingKind.CHANGED


def accept_all(
    before: Baseline,
    current: Mapping[CellId, CellOutcome],
    states: Mapping[str, AcceptedModel],
    gate: Gate,
) -> Baseline:
    """Accept every current outcome.

    A removed cell stays until it is back, with its reason or without one, so that a later
    command can name it.
    """
    known = before.by_cell()
    policies = {
        model_id: gate.find_policy(model_id) for model_id in {cell.model for cell in current}
    }
    outcomes = []
    for cell, after in current.items():
        old = known.get(cell)
        if old is None or strip_figures(old) != strip_figures(after):
            outcomes.append(after)
        elif has_same_figures(old, after, policies[cell.model]):
            outcomes.append(old)
        else:  # the reason belongs to the outcome
            outcomes.append(after.model_copy(update={"reason": old.reason}))
    reasons = {**dict.fromkeys(known, ""), **before.dropped}
    dropped = {cell: text for cell, text in reasons.items() if cell not in current}
    return build_baseline(outcomes, {**before.models, **states}.__getitem__, dropped)


def accept_some(
    before: Baseline,
    current: Mapping[CellId, CellOutcome],
    reasons: Mapping[CellId, str],
    states: Mapping[str, AcceptedModel],
) -> Baseline:
    """Accept the given cells with their reasons; all other cells keep their accepted outcome.

    A cell without a current outcome is removed from the baseline. The state of a model belongs to
    all of its cells, so it is accepted with the last of them.
    """
    outcomes = {cell: each for cell, each in before.by_cell().items() if cell not in reasons}
    dropped = {cell: text for cell, text in before.dropped.items() if cell not in current}
    for cell, reason in reasons.items():
        if cell in current:
            outcomes[cell] = current[cell].model_copy(update={"reason": reason})
        else:
            dropped[cell] = reason
    partial = {cell.model for cell in current.keys() - reasons.keys()}
    known = {
        model_id: AcceptedModel(tools=state.tools, cells=()) for model_id, state in states.items()
    }
    known |= before.models
    known |= {model_id: state for model_id, state in states.items() if model_id not in partial}
    return build_baseline(outcomes.values(), known.__getitem__, dropped)


def strip_figures(outcome: CellOutcome) -> CellOutcome:
    """Return the outcome without figures and reason: the part that a user accepts."""
    return outcome.model_copy(update={"figures": None, "reason": ""})
