"""Join the parts of a model that several workers build.

A part cannot replace the model's folder on its own: the other parts start from that folder, and
their results could not be carried over.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from exporter.core.files import PROJECT_LIMIT, read_regular_file
from exporter.jobs.job import Announcement, Job
from exporter.jobs.job_folder import JobFolder, write_json
from exporter.jobs.reference import Reference
from exporter.pipeline.engine import Task
from exporter.pipeline.folder.carry_over import carry_over, remove_unrecorded_files, repair_folder
from exporter.pipeline.folder.stored_records import FolderRecords
from exporter.records.record import Record, Stage


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job with the records in its folder."""

    job: Job
    records: FolderRecords


class SplitJobs:
    """The running and ended parts of each model.

    Args:
        tasks: All tasks of the run.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._running: dict[str, set[str]] = {}
        for task in tasks:
            self._running.setdefault(task.job.spec.id, set()).add(task.job.folder)
        self._split_models = {model for model, parts in self._running.items() if len(parts) > 1}
        self._ended: dict[str, list[EndedJob]] = {}

    def is_split(self, model: str) -> bool:
        """Return True if a model has several parts and not all have ended."""
        return model in self._split_models

    def add_ended(self, job: Job, records: FolderRecords) -> list[EndedJob]:
        """Add an ended part.

        Returns:
            All parts of the model, or an empty list if another part is running.
        """
        model = job.spec.id
        self._ended.setdefault(model, []).append(EndedJob(job, records))
        self._running[model].discard(job.folder)
        if self._running[model]:
            # If the run is killed now, all records in the folder count.
            announcement = Announcement(stage=Stage.PARITY, cells=(), log="")
            write_json(JobFolder(Path(job.folder)).announcement, announcement)
            return []
        self._split_models.discard(model)
        return self._ended.pop(model)

    def list_incomplete(self) -> list[list[EndedJob]]:
        """Return the ended parts of each model with a part that never started."""
        return list(self._ended.values())


def join_folders(parts: Sequence[FolderRecords]) -> tuple[FolderRecords, list[Record]]:
    """Join all parts in one of their folders.

    Returns:
        The joined part, and the records that were dropped because PyTorch's outputs differed.
    """
    for part in parts:
        if repair_folder(part.folder):  # the model also ran in the worker of another part
            part.discard()
        remove_unrecorded_files(part)
    main, *others = sorted(parts, key=_rank, reverse=True) if len(parts) > 1 else parts
    dropped = []
    for other in others:
        dropped += carry_over(other, main, lambda _: True, same_run=True)
    for other in others:
        # onnx rejects external data with a second name. If a model made its folder unreadable, the
        # folder is removed with the other private folders of the run.
        shutil.rmtree(other.folder.path, ignore_errors=True)
    return main, dropped


def _rank(part: FolderRecords) -> tuple[bool, bool, bool]:
    """Return a sort key: results first, then a reference, then float64 outputs for all samples."""
    path = part.folder.reference
    try:
        is_exact = Reference.read(read_regular_file(path, PROJECT_LIMIT)).is_measured_everywhere
    except (OSError, ValueError):
        is_exact = False
    return bool(part.by_cell), os.path.lexists(path), is_exact
