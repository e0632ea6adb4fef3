"""The parts of models whose opsets several workers make: each waits for the last, then they join.

In: jobs as they end. Out: the folders of a model, once nobody is at work on it. To put parts into
place one by one would take away what the others start from, and what they could not be kept beside
would be made by each in turn.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from exporter.build.engine import Task
from exporter.build.folder.carry_over import carry_over, remove_unrecorded_files, repair_folder
from exporter.jobs.job import Announcement, Job
from exporter.jobs.job_folder import JobFolder, write_json
from exporter.jobs.reference import Reference
from exporter.records.record import Record, Stage


class SplitJobs:
    """Knows which folders of a model are at work, and which wait for the others.

    Args:
        tasks: All tasks of the run; those of one model are its parts.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._at_work: dict[str, set[str]] = {}
        for task in tasks:
            self._at_work.setdefault(task.job.spec.id, set()).add(task.job.folder)
        self._divided = {model for model, folders in self._at_work.items() if len(folders) > 1}
        self._ended: dict[str, list[Job]] = {}

    def is_part(self, model: str) -> bool:
        """Whether several workers make the model, and have not all ended."""
        return model in self._divided

    def ended(self, job: Job) -> list[Job]:
        """Every ended job of the model where this was the last one at work; none before that."""
        model = job.spec.id
        self._ended.setdefault(model, []).append(job)
        self._at_work[model].discard(job.folder)
        if self._at_work[model]:
            _rest(job)
            return []
        self._divided.discard(model)
        return self._ended.pop(model)

    def leave(self) -> list[list[Job]]:
        """The ended jobs of each model of which a part never started."""
        return list(self._ended.values())


def _rest(job: Job) -> None:
    """Says that no cell is at work in the folder: should the run be killed, all of them count."""
    announcement = Announcement(stage=Stage.PARITY, cells=(), log="")
    write_json(JobFolder(Path(job.folder)).announcement, announcement)


def join_folders(folders: Sequence[JobFolder]) -> tuple[JobFolder, list[Record]]:
    """Brings all parts into one of the folders.

    Returns:
        The folder, and the records that could not be kept in it: PyTorch answered their worker in
        another way.
    """
    for folder in folders:
        repair_folder(folder)  # the worker of another part ran the same model
        remove_unrecorded_files(folder)
    whole, *others = sorted(folders, key=_says, reverse=True) if len(folders) > 1 else folders
    lost = [
        record
        for other in others
        for record in carry_over(other, whole, lambda _: True, at_once=True)
    ]
    for other in others:
        # onnx refuses weights that have a second name. A model may have closed its folder to all:
        # then it goes, or stays, with the other private folders of the run.
        shutil.rmtree(other.path, ignore_errors=True)
    return whole, lost


def _says(folder: JobFolder) -> tuple[bool, bool, bool]:
    """How much the folder says of the model: more goes before less.

    What one worker found worth measuring more exactly holds for the others' files too.
    """
    return bool(folder.read_records()), os.path.lexists(folder.reference), _is_exact(folder)


def _is_exact(folder: JobFolder) -> bool:
    try:
        return Reference.read(folder.reference.read_bytes()).is_measured_everywhere
    except (OSError, ValueError):
        return False
