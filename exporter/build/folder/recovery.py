"""What a killed run had finished is kept: only the cells that were at work are made again.

In: the private folders that such a run left. Out: their finished cells in `build/<model>`, as far
as they still hold, and a line for each model.

A record counts as after a crash of the worker: all but those of the cells announced last. Whether
its files are whole is looked at by `decide`, like those of every other record.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from exporter.build.folder.build_folder import BuildFolder
from exporter.build.folder.carry_over import carry_over, remove_unrecorded_files
from exporter.build.folder.flakiness import mark_flaky
from exporter.cache.staleness import TRANSIENT_STATUSES
from exporter.jobs.job import Announcement, Job
from exporter.jobs.job_folder import JobFolder
from exporter.records.record import Record


def recover_killed_runs(build: BuildFolder, holds: Callable[[Record], bool]) -> tuple[str, ...]:
    """Puts what killed runs had finished into place; whatever else they left is cleared away.

    Args:
        build: The build folder, locked.
        holds: Whether a record speaks for a cell that is promised today.

    Returns:
        A line for each model of which something was kept.
    """
    for path in build.list_abandoned():
        _put_back(build, path)
    notes = [note for path in build.list_abandoned() if (note := _keep(build, path, holds))]
    build.remove_abandoned()
    return tuple(notes)


def _put_back(build: BuildFolder, path: Path) -> None:
    """A model's folder that was moved out of the way when the run died before the next came in."""
    for child in path.glob("*"):
        # It is named for its model, and of a job's own folders none holds records.
        final = build.model_folder(child.name).path
        is_moved = path.name.startswith(f"{child.name}-old-") and not child.is_symlink()
        if is_moved and not final.exists() and not final.is_symlink():
            child.rename(final)


def _keep(build: BuildFolder, path: Path, holds: Callable[[Record], bool]) -> str:
    folder = JobFolder(path)
    job = _job(folder)
    # Removing records must not reach through a link.
    is_own = job is not None and path.name.startswith(f"{job.spec.id}-")
    if job is None or not is_own or folder.records.is_symlink():
        return ""
    model = job.spec.id
    at_work = _at_work(folder, job)
    for name, record in folder.read_records().items():
        counts = record.cell.model == model and name not in at_work
        if not counts or record.status in TRANSIENT_STATUSES or not holds(record):
            folder.record(record.cell).unlink(missing_ok=True)
    kept = folder.read_records()
    if not kept:
        return ""
    remove_unrecorded_files(folder)
    mark_flaky(build.model_folder(model), folder)
    # Results in place that hold and do not go with these are not given up for them.
    if any(holds(record) for record in carry_over(build.model_folder(model), folder, holds)):
        return ""
    build.replace_model(model, folder)
    count = f"{len(kept)} result{'s' if len(kept) > 1 else ''}"
    return f"{model}: {count} of a run that was killed {'are' if len(kept) > 1 else 'is'} kept"


def _job(folder: JobFolder) -> Job | None:
    try:
        return Job.model_validate_json(folder.job.read_bytes())
    except (OSError, ValidationError):
        return None


def _at_work(folder: JobFolder, job: Job) -> set[str]:
    """The cells whose records may be unfinished: where nothing says which, all of the job."""
    try:
        announced = Announcement.model_validate_json(folder.announcement.read_bytes())
    except (OSError, ValidationError):
        return {str(cell) for cell in job.cells()}
    return {str(cell) for cell in announced.cells}
