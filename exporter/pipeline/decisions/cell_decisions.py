"""Decide which selected cells run, are rechecked, restored or reused, and why.

A cell is reused if its record is up to date, a retry cannot change its status, and its files have
their recorded hashes. If validity is uncertain, the cell is rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from exporter.cache.artifact_integrity import ArtifactVerifier
from exporter.cache.fingerprint import TRANSIENT_STATUSES
from exporter.cache.store import Store
from exporter.pipeline.decisions.build_results import RecordValidator
from exporter.pipeline.decisions.store_transfer import StoreHit, look_up
from exporter.pipeline.folder.stored_records import StoredRecords
from exporter.planning.plan import Plan, PlannedCell
from exporter.records.record import CellId, Record, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """The decisions of a build."""

    to_run: tuple[PlannedCell, ...]
    """In the order of the plan."""
    reasons: Mapping[CellId, str]
    """Why a cell runs."""
    rechecks: frozenset[CellId] = frozenset()
    """The cells in `to_run` that are rechecked, because their files are up to date."""
    hits: Mapping[CellId, StoreHit] = field(default_factory=dict)
    """The cells that are restored from the store."""

    def is_to_run(self, planned: PlannedCell) -> bool:
        """Return True if the cell is run or rechecked."""
        return planned.cell in self.reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """The options of a build."""

    force: bool = False
    """Run all selected cells."""
    thorough: bool = False
    """Prove all selected cells thoroughly."""
    store: Store | None = None
    """The store for finished cells, or None."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The environment variables of exports with other packages."""
    read_sizes: Callable[[], Mapping[str, int]] = dict
    """Return the accepted nodes of each model: the order of those without earlier times."""


DEFAULT_OPTIONS = BuildOptions()


def decide(
    plan: Plan,
    stored: StoredRecords,
    validator: RecordValidator,
    options: BuildOptions = DEFAULT_OPTIONS,
) -> Decisions:
    """Decide for every selected cell.

    Args:
        plan: The selected cells.
        stored: The records of earlier runs.
        validator: Compares them with the current state.
        options: The options of the build.
    """
    verifier = ArtifactVerifier(stored.build.path)
    reasons: dict[CellId, str] = {}
    rechecks = set()
    for planned in plan.to_run:
        cell = planned.cell
        record = stored.get(cell)
        if options.force:
            reasons[cell] = "a rebuild of every selected cell was requested"
        elif record is None:
            reasons[cell] = stored.find_missing_reason(cell)
        elif record.status in TRANSIENT_STATUSES:
            reasons[cell] = f"its previous result was {record.status}"
        elif record.untracked:
            reasons[cell] = f"it depends on {record.untracked[0]}, which cannot be tracked"
        elif reason := validator.find_staleness_reason(record):
            reasons[cell] = reason
            if _can_recheck(record, validator, verifier):
                rechecks.add(cell)
        elif problem := verifier.find_record_problem(record):
            reasons[cell] = problem
        elif options.thorough and not record.thorough:
            reasons[cell] = "it was not proved thoroughly"
    verifier.save()
    decisions = Decisions(
        to_run=tuple(planned for planned in plan.to_run if planned.cell in reasons),
        reasons=reasons,
        rechecks=frozenset(rechecks),
    )
    if options.store is None or options.force:
        return decisions
    return _use_store(decisions, stored, validator, options)


def _can_recheck(record: Record, validator: RecordValidator, verifier: ArtifactVerifier) -> bool:
    """Return True if the cell has its file and only the inputs of the checks changed."""
    was_checked = record.status in (Status.PASS, Status.FAIL, Status.INCONCLUSIVE)
    if not was_checked or record.artifact is None or verifier.find_problem(record.artifact):
        return False
    return validator.has_only_check_changes(record)


def _use_store(
    decisions: Decisions, stored: StoredRecords, validator: RecordValidator, options: BuildOptions
) -> Decisions:
    """Return the decisions with the cells that the store can restore.

    The export with a toolchain restores its cells itself.
    """
    cells = (planned.cell for planned in decisions.to_run)
    if options.store is None:
        return decisions
    lookup = look_up(
        options.store,
        {cell: decisions.reasons[cell] for cell in cells if stored.build.owns(cell)},
        validator.fingerprints.get_cell_parts,
        lambda record: validator.is_valid(record) and (record.thorough or not options.thorough),
    )
    reasons = {
        cell: f"{reason}, and {lookup.problems[cell]}" if cell in lookup.problems else reason
        for cell, reason in decisions.reasons.items()
        if cell not in lookup.hits
    }
    return replace(
        decisions,
        to_run=tuple(each for each in decisions.to_run if each.cell in reasons),
        reasons=reasons,
        rechecks=decisions.rechecks - lookup.hits.keys(),
        hits=lookup.hits,
    )


def add_failed_restores(
    decisions: Decisions, plan: Plan, problems: Mapping[CellId, str]
) -> Decisions:
    """Return the decisions with a run for each cell that could not be restored.

    Args:
        decisions: The decisions before the restore.
        plan: The order of the cells.
        problems: Why a cell was not restored.
    """
    failed = {
        cell: f"{decisions.hits[cell].reason}, and {problem}" for cell, problem in problems.items()
    }
    reasons = {**decisions.reasons, **failed}
    return replace(
        decisions,
        to_run=tuple(planned for planned in plan.to_run if planned.cell in reasons),
        reasons=reasons,
        hits={cell: hit for cell, hit in decisions.hits.items() if cell not in problems},
    )
