"""Restore finished cells from the store, and add new ones to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from exporter.cache.states import have_tools_changed
from exporter.cache.store import Store, StoreEntry
from exporter.jobs.job import Job
from exporter.jobs.job_folder import JobFolder, write_json
from exporter.manifest import Manifest
from exporter.pipeline.decisions.build_results import RecordValidator
from exporter.pipeline.folder.carry_over import carry_over, remove_unrecorded_files
from exporter.pipeline.folder.maintenance import mark_flaky
from exporter.pipeline.folder.stored_records import FolderRecords, StoredRecords
from exporter.records.record import CellId, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHit:
    """A cell that the store contains."""

    entry: StoreEntry
    reason: str
    """Why the cell would run without the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLookup:
    """The result of a lookup."""

    hits: Mapping[CellId, StoreHit]
    problems: Mapping[CellId, str]
    """Why an existing entry cannot be used."""


def look_up(
    store: Store,
    reasons: Mapping[CellId, str],
    get_parts: Callable[[CellId], Mapping[str, str]],
    is_valid: Callable[[Record], bool],
) -> StoreLookup:
    """Search the store for cells.

    Args:
        store: The store.
        reasons: The cells, with the reason why each would run.
        get_parts: Returns the current fingerprint of a cell.
        is_valid: Returns True if a record is up to date.
    """
    if not reasons:
        return StoreLookup(hits={}, problems={})
    hits, problems = {}, {}
    results = store.find_all({cell: get_parts(cell) for cell in reasons}, is_valid)
    for cell, result in results.items():
        if result.entry:
            hits[cell] = StoreHit(entry=result.entry, reason=reasons[cell])
        elif result.problem:
            problems[cell] = result.problem
    return StoreLookup(hits=hits, problems=problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """Predicates for the records of the build folder that stay beside restored ones."""

    is_valid: Callable[[Record], bool]
    has_valid_file: Callable[[Record], bool]
    """True if at least the file is up to date."""


def restore(
    job: Job,
    hits: Mapping[CellId, StoreHit],
    store: Store,
    stored: StoredRecords,
    rules: RetentionRules,
) -> dict[CellId, str]:
    """Restore the cells of one model, beside valid results of the build folder, which stay.

    Args:
        job: The job that would build the cells, with an empty folder.
        hits: The entry of each cell.
        store: The store.
        stored: The records of the build folder, which is locked.
        rules: Select the records of the build folder that stay.

    Returns:
        Why a cell cannot be restored.
    """
    model = job.spec.id
    main = FolderRecords(JobFolder(Path(job.folder)))
    model_hits = {cell: hits[cell] for cell in job.cells()}
    groups: dict[str, dict[CellId, StoreHit]] = {}
    for cell, hit in model_hits.items():
        groups.setdefault(hit.entry.reference, {})[cell] = hit
    problems: dict[CellId, str] = {}
    # Cells with the same PyTorch outputs belong together. The largest group has priority.
    for index, group in enumerate(sorted(groups.values(), key=len, reverse=True)):
        part = main if index == 0 else FolderRecords(stored.build.create_folder(model))
        for cell, hit in group.items():
            if problem := store.restore(hit.entry, part.folder.path):
                problems[cell] = problem
            else:
                part.write(hit.entry.record)
        remove_unrecorded_files(part)
        if part is not main:
            dropped = carry_over(part, main, lambda _: True)
            cells = (record.cell for record in dropped)
            problems |= dict.fromkeys(cells, "its store entry is from another run")
    if not main.by_cell:
        store.adopt(main.folder.path)
        return problems
    write_json(main.folder.job, job)
    old = stored.get_model(model)
    mark_flaky(old, main)
    dropped = carry_over(old, main, lambda r: rules.is_valid(r) or rules.has_valid_file(r))
    if any(rules.is_valid(record) for record in dropped):
        store.adopt(main.folder.path)
        message = "its store entry does not match the other results of the model"
        return dict.fromkeys(model_hits, message)
    stored.replace_model(model, main, store.adopt)
    return problems


class StoreWriter:
    """Writes results to the store.

    Args:
        manifest: The project.
        today: The date of the run.
        store: The store, or None if results are not stored.
    """

    def __init__(self, manifest: Manifest, today: date, store: Store | None) -> None:
        self._manifest = manifest
        self._today = today
        self._store = store

    def put(self, records: Iterable[Record], folder: JobFolder) -> str:
        """Store the records that are up to date.

        Args:
            records: The records of one job.
            folder: The model's folder with their files.

        Returns:
            Why nothing is stored from now on. The message is returned once, then "".
        """
        if self._store is None or have_tools_changed():
            return ""
        validator = RecordValidator(self._manifest, self._today)
        return self._store.put([each for each in records if validator.is_valid(each)], folder)

    def adopt(self, folder: Path) -> None:
        """Move the external data of a model's folder into the store before it is deleted."""
        if self._store is not None:
            self._store.adopt(folder)
