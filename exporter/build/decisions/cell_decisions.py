"""Which of the selected cells run, and why; which are left as they are.

In: a plan and the records in the build folder. Out: `Decisions`.

A cell is left alone where its record holds, another try could not settle it otherwise, and its
files are the ones that were proved. In doubt it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from exporter.build.decisions.build_results import RecordValidator
from exporter.build.decisions.store_reader import StoreHit, StoreLookup, look_up
from exporter.build.folder.stored_records import StoredRecords
from exporter.cache.artifact_integrity import ArtifactVerifier
from exporter.cache.staleness import TRANSIENT_STATUSES
from exporter.cache.store import Store
from exporter.planning.plan import Plan, PlannedCell
from exporter.records.record import Record, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What an export does with each selected cell."""

    to_run: tuple[PlannedCell, ...]
    """In the order of the plan."""
    reasons: Mapping[str, str]
    """Why a cell runs, by its text."""
    rechecks: frozenset[str] = frozenset()
    """Those of which only the checks run: their files are the ones that would be made."""
    hits: Mapping[str, StoreHit] = field(default_factory=dict)
    """The cells that are taken from the store instead of being run, by their text."""

    def is_to_run(self, planned: PlannedCell) -> bool:
        """Whether the cell is run."""
        return str(planned.cell) in self.reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """What a run is asked to do beyond what has to be done."""

    force: bool = False
    """Every selected cell runs, whatever is known of it."""
    thorough: bool = False
    """Every selected cell is proved thoroughly, whatever its entry says."""
    store: Store | None = None
    """Where finished cells are looked for and kept; None: nowhere but in the build folder."""


DEFAULT_OPTIONS = BuildOptions()


def decide(
    plan: Plan, stored: StoredRecords, judge: RecordValidator, wish: BuildOptions = DEFAULT_OPTIONS
) -> Decisions:
    """Looks at every selected cell.

    Args:
        plan: What is promised and selected.
        stored: The records of earlier runs.
        judge: Knows what is true today.
        wish: What is asked for beyond that.
    """
    intact = ArtifactVerifier(stored.path)
    reasons: dict[str, str] = {}
    rechecked = set()
    for planned in plan.to_run:
        record = stored.of(planned.cell)
        if wish.force:
            reasons[str(planned.cell)] = "every selected cell was asked for"
        elif record is None:
            reasons[str(planned.cell)] = stored.find_missing_reason(planned.cell)
        elif why := _why(record, judge.find_staleness_reason, intact):
            reasons[str(planned.cell)] = why
            if _only_checks(record, judge, intact):
                rechecked.add(str(planned.cell))
        elif wish.thorough and not record.thorough:
            reasons[str(planned.cell)] = "it was not proved thoroughly"
    intact.save()
    whole = Decisions(
        to_run=tuple(planned for planned in plan.to_run if str(planned.cell) in reasons),
        reasons=reasons,
        rechecks=frozenset(rechecked),
    )
    return _with_hits(whole, _ask_store(whole, judge, wish))


def add_failed_restores(decisions: Decisions, plan: Plan, problems: Mapping[str, str]) -> Decisions:
    """The same decisions, but that some cells could not be taken from the store."""
    missed = {name: f"{decisions.hits[name].why}, and {why}" for name, why in problems.items()}
    reasons = {**decisions.reasons, **missed}
    return replace(
        decisions,
        to_run=tuple(planned for planned in plan.to_run if str(planned.cell) in reasons),
        reasons=reasons,
        hits={name: hit for name, hit in decisions.hits.items() if name not in problems},
    )


def _ask_store(decisions: Decisions, judge: RecordValidator, wish: BuildOptions) -> StoreLookup:
    if wish.store is None or wish.force:
        return StoreLookup(hits={}, problems={})
    reasons = {planned.cell: decisions.reasons[str(planned.cell)] for planned in decisions.to_run}
    return look_up(
        wish.store,
        reasons,
        judge.fingerprints.of,
        lambda record: judge.holds(record) and (record.thorough or not wish.thorough),
    )


def _with_hits(whole: Decisions, found: StoreLookup) -> Decisions:
    """What is left to run where the store has some of it."""
    reasons = {
        name: f"{why}, and {found.problems[name]}" if name in found.problems else why
        for name, why in whole.reasons.items()
        if name not in found.hits
    }
    return replace(
        whole,
        to_run=tuple(planned for planned in whole.to_run if str(planned.cell) in reasons),
        reasons=reasons,
        rechecks=whole.rechecks - found.hits.keys(),
        hits=found.hits,
    )


def _why(record: Record, stale: Callable[[Record], str], intact: ArtifactVerifier) -> str:
    if record.status in TRANSIENT_STATUSES:
        return f"it was {record.status} the last time"
    if reason := stale(record):
        return reason
    return intact.find_problem(record.artifact) if record.artifact else ""


def _only_checks(record: Record, judge: RecordValidator, intact: ArtifactVerifier) -> bool:
    """Whether what the checks read is all that changed of a cell that has its file."""
    has_outcome = record.status in (Status.PASS, Status.FAIL, Status.INCONCLUSIVE)
    if not has_outcome or record.artifact is None or intact.find_problem(record.artifact):
        return False
    return judge.has_only_check_changes(record)
