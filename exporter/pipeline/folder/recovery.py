"""Recover the finished cells of killed runs; only the unfinished ones run again.

All records count except those of the last announced cells, as after a crash of the worker.
`decide` verifies the files, as for any other record.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from exporter.cache.staleness import TRANSIENT_STATUSES
from exporter.core.files import CELL_LIMIT, read_regular_file
from exporter.core.text import pluralize
from exporter.jobs.job import Announcement, Job
from exporter.jobs.job_folder import JobFolder
from exporter.pipeline.folder.carry_over import carry_over, remove_unrecorded_files
from exporter.pipeline.folder.flakiness import mark_flaky
from exporter.pipeline.folder.stored_records import FolderRecords, StoredRecords
from exporter.records.record import Record


def recover_killed_runs(
    stored: StoredRecords, is_valid: Callable[[Record], bool]
) -> tuple[str, ...]:
    """Move finished results of killed runs to their models, and remove the rest.

    Args:
        stored: The records of the build folder, which is locked.
        is_valid: Returns True if a record is up to date and its cell is in the manifest.

    Returns:
        A line for each model with recovered results.
    """
    build = stored.build
    for path in build.list_abandoned():
        # The run died between the two renames of `BuildFolder.replace_model`.
        for child in path.glob("*"):
            # Only the folder of a replaced model has this name and contains records.
            final = build.model_folder(child.name).path
            is_replaced = path.name.startswith(f"{child.name}-old-") and not child.is_symlink()
            if is_replaced and not final.exists() and not final.is_symlink():
                child.rename(final)
    notes = [
        note for path in build.list_abandoned() if (note := _recover_folder(stored, path, is_valid))
    ]
    build.remove_abandoned()
    return tuple(notes)


def _recover_folder(stored: StoredRecords, path: Path, is_valid: Callable[[Record], bool]) -> str:
    folder = JobFolder(path)
    try:
        job = Job.model_validate_json(read_regular_file(folder.job, CELL_LIMIT))
    except (OSError, ValidationError):
        return ""
    model = job.spec.id
    # Records must not be removed through a symlink.
    if not path.name.startswith(f"{model}-") or folder.records.is_symlink():
        return ""
    try:
        announcement = Announcement.model_validate_json(
            read_regular_file(folder.announcement, CELL_LIMIT)
        )
        unfinished = announcement.cells
    except (OSError, ValidationError):
        unfinished = job.cells()
    records = FolderRecords(folder)
    for cell, record in tuple(records.by_cell.items()):
        is_finished = cell.model == model and cell not in unfinished
        if not is_finished or record.status in TRANSIENT_STATUSES or not is_valid(record):
            records.remove(cell)
    if not records.by_cell:
        return ""
    count = len(records.by_cell)
    remove_unrecorded_files(records)
    old = stored.get_model(model)
    mark_flaky(old, records)
    # Valid results of the build folder have priority over the recovered ones.
    if any(is_valid(record) for record in carry_over(old, records, is_valid)):
        return ""
    stored.replace_model(model, records)
    return f"{model}: recovered {pluralize(count, 'result')} of a killed run"
