"""The request of an audit, and the results that the response counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from exporter.core.frozen_model import FrozenModel
from exporter.manifest import Device, ModelSpec
from exporter.records.audit import Audit, MutantOutcome, Survivor, Tally
from exporter.records.record import CellId


class AuditRequest(FrozenModel):
    """The cell of an audit and its options."""

    cell: CellId
    spec: ModelSpec
    device: Device
    root: str
    """The project's root, absolute."""
    original: str
    """The model's folder inside the build folder, absolute; read only."""
    folder: str
    """A private folder for the mutants, absolute."""
    mutants: int
    seed: int
    entry: str = ""
    """The fingerprint of the entry when the file was exported."""


class MutantResult(FrozenModel):
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


def summarize_audit(
    request: AuditRequest, results: Iterable[MutantResult], tools: dict[str, str]
) -> Audit:
    """Return the counts of outcomes, and the survivors."""
    results = tuple(results)
    outcomes: dict[str, Counter[str]] = {}
    for result in results:
        outcomes.setdefault(result.kind, Counter())[result.outcome.value] += 1
    checks = Counter(item.check for item in results if item.outcome is MutantOutcome.CAUGHT)
    return Audit(
        cell=request.cell,
        seed=request.seed,
        mutants=len(results),
        tools=tools,
        entry=request.entry,
        tallies=tuple(Tally(kind=kind, **counts) for kind, counts in sorted(outcomes.items())),
        caught_by=dict(sorted(checks.items())),
        survivors=tuple(
            Survivor(kind=item.kind, change=item.change, reason=item.reason)
            for item in results
            if item.outcome is MutantOutcome.SURVIVED
        ),
    )
