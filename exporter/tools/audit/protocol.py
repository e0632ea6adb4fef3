"""What an audit is asked and what it answers, as JSON between two processes and in git.

In: nothing. Out: `PublishRequest`, `MutantResult`, `MutantOutcome`, `Survivor`, `Audit`. Imports nothing heavy: the
command and the report read these too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from exporter.core.frozen_model import FrozenModel
from exporter.manifest import Device, ModelSpec
from exporter.records.audit import Audit, MutantOutcome, Survivor, Tally
from exporter.records.record import CellId


class AuditRequest(FrozenModel):
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


class MutantResult(FrozenModel):
    """One mutant and its fate."""

    kind: str
    """`weight`, `attribute`, `operator`, `edge`, `shape` or `header`."""
    change: str
    """One line: what was changed."""
    fate: MutantOutcome
    by: str = ""
    """Of a caught one, the check that said no, or `load`, `crash`, `timeout`, `raised`."""
    why: str = ""
    """Of a survivor, the input that shows it and by how much; of others, what was seen."""


def summarize_audit(
    request: AuditRequest, tried: Iterable[MutantResult], tools: dict[str, str]
) -> Audit:
    """Counts what came of each mutant."""
    results = tuple(tried)
    kinds = tuple(dict.fromkeys(item.kind for item in results))
    by = Counter(item.by for item in results if item.fate is MutantOutcome.CAUGHT)
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
            if item.fate is MutantOutcome.SURVIVED
        ),
    )


def _tally(kind: str, results: Iterable[MutantResult]) -> Tally:
    fates = Counter(item.fate.value for item in results if item.kind == kind)
    return Tally(kind=kind, **fates)
