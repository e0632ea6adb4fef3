"""Handle the events of jobs: decide their cells, retry, and replace model folders."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from exporter.core.errors import ExitCode, ExporterError
from exporter.jobs.job import Announcement, Job
from exporter.jobs.job_folder import JobFolder
from exporter.manifest import Manifest
from exporter.pipeline.decisions.build_results import RecordValidator
from exporter.pipeline.decisions.cell_decisions import Decisions
from exporter.pipeline.decisions.store_transfer import StoreWriter
from exporter.pipeline.engine import Engine, ExitKind, JobResult, Task
from exporter.pipeline.execute.job_outcome import evaluate_job, read_log_tail, restrict_job
from exporter.pipeline.execute.split_jobs import EndedJob, SplitJobs, join_folders
from exporter.pipeline.folder.carry_over import carry_over, repair_folder
from exporter.pipeline.folder.maintenance import mark_flaky
from exporter.pipeline.folder.stored_records import FolderRecords, StoredRecords
from exporter.pipeline.schedule import make_opset_jobs
from exporter.planning.plan import Plan
from exporter.records.record import CellId, Record, Status

#: How often a job runs again because its folder was removed. Another model can do that.
_MAX_LOST_FOLDERS = 3


class BuildObserver(Protocol):
    """Receives the progress of a build, to show it."""

    def on_decisions(self, decisions: Decisions) -> None:
        """Show the decisions. This is the first call, and it is made once."""

    def on_announcement(self, announcement: Announcement) -> None:
        """Show the current stage of cells."""

    def on_cell_done(self, record: Record) -> None:
        """Show the result of a cell, with expectations applied."""

    def on_model_done(self, model: str) -> None:
        """Show that all results of a model are in place."""

    def on_note(self, message: str) -> None:
        """Show a message for the user."""


class Supervisor:
    """Handles the events of an engine."""

    def __init__(
        self,
        manifest: Manifest,
        plan: Plan,
        stored: StoredRecords,
        validator: RecordValidator,
        observer: BuildObserver,
        store_writer: StoreWriter,
    ) -> None:
        self._project = manifest.project
        self._planned = {planned.cell for planned in plan.cells}
        self._selected = {planned.cell: planned for planned in plan.to_run}
        self._stored = stored
        self._validator = validator
        self._observer = observer
        self._store_writer = store_writer
        self._split_jobs = SplitJobs(())
        self._reported: set[CellId] = set()
        #: Seconds of all workers by folder: retries share the time limit of the model.
        self._used_seconds: Counter[str] = Counter()
        self._lost_folders: Counter[str] = Counter()
        self._postponed: dict[str, list[CellId]] = {}

    def run(self, engine: Engine, tasks: Sequence[Task]) -> None:
        """Run the tasks and the tasks that follow them.

        Raises:
            ExporterError: ENVIRONMENT, if a worker found that its environment is unusable.
            KeyboardInterrupt: after finished results were put in place.
        """
        self._split_jobs = SplitJobs(tasks)
        try:
            engine.run(tasks, self)
        except KeyboardInterrupt:
            for ended in self._split_jobs.list_incomplete():
                self._finish(ended, interrupted=True)
            raise

    def on_announcement(self, announcement: Announcement) -> None:
        """Forward the start of a stage."""
        self._observer.on_announcement(announcement)

    def on_record(self, record: Record) -> None:
        """Report a finished cell once."""
        if record.cell not in self._reported and self._is_final(record):
            self._reported.add(record.cell)
            self._observer.on_cell_done(self._validator.apply_expectations(record))

    def on_job_end(self, result: JobResult) -> Task | None:
        """Decide the cells of a job.

        Returns:
            A task for the remaining cells, or None.

        Raises:
            ExporterError: ENVIRONMENT, if the worker found that its environment is unusable.
        """
        is_unusable = result.exit_kind is ExitKind.EXITED and result.code == ExitCode.ENVIRONMENT
        # A model can exit with any code. The worker checks its environment before it announces.
        if is_unusable and result.last_announcement is None:
            lines = read_log_tail(result.job, None).splitlines()
            message = lines[-1] if lines else "the worker cannot start; run `exporter doctor`"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
        job = result.job
        records = FolderRecords(JobFolder(Path(job.folder)))
        is_lost = not os.path.lexists(records.folder.job)
        repair_folder(records.folder)
        if is_lost and not all(cell in records.by_cell for cell in job.cells()):
            result = self._handle_lost_folder(result, records)
        verdict = evaluate_job(result, records.by_cell)
        for cell in job.cells():
            record = verdict.records.get(cell)
            if record and self._is_final(record):
                records.write(record)
                self.on_record(record)
            else:
                records.remove(cell)
                if record:
                    self._postponed.setdefault(cell.model, []).append(cell)
        if result.exit_kind is not ExitKind.SERVER_END:
            self._used_seconds[job.folder] += math.ceil(result.seconds)
        if verdict.retry:
            return self._make_task(restrict_job(job, verdict.retry))
        interrupted = result.exit_kind is ExitKind.INTERRUPTED
        ended = self._split_jobs.add_ended(job, records)
        return self._finish(ended, interrupted=interrupted) if ended else None

    def _handle_lost_folder(self, result: JobResult, records: FolderRecords) -> JobResult:
        """Return the end of a job whose folder was removed, by its own model or by another one."""
        for cell in result.job.cells():
            records.remove(cell)  # its file may be lost
        folder = result.job.folder
        self._lost_folders[folder] += 1
        may_retry = result.exit_kind in (ExitKind.EXITED, ExitKind.SIGNAL)
        if may_retry and self._lost_folders[folder] <= _MAX_LOST_FOLDERS:
            return replace(result, exit_kind=ExitKind.SERVER_END)
        return result

    def _is_final(self, record: Record) -> bool:
        """Return False if the cell is retried without parallel workers of the same model.

        Two workers with the same model can exceed the machine's memory. A killed one is retried
        alone.
        """
        return record.status is not Status.KILLED or not self._split_jobs.is_split(
            record.cell.model
        )

    def _make_task(self, job: Job) -> Task:
        """Return a task with the remaining time of the model."""
        remaining = job.spec.timeout - self._used_seconds[job.folder]
        return Task(job=job, seconds=max(remaining, 1.0))

    def _finish(self, ended: Sequence[EndedJob], *, interrupted: bool) -> Task | None:
        """Put the results of a model in place.

        Returns:
            A task for cells that cannot be carried over or were postponed, or None.
        """
        job = ended[0].job
        model = job.spec.id
        fresh, dropped = join_folders([each.records for each in ended])
        postponed = [] if interrupted else self._postponed.pop(model, [])
        if not fresh.by_cell and not postponed:
            return None  # interrupted before the first cell
        old = self._stored.get_model(model)
        mark_flaky(old, fresh)
        built = tuple(fresh.by_cell.values())

        def is_kept(record: Record) -> bool:
            is_wanted = record.cell in self._planned and record.cell not in postponed
            return is_wanted and self._validator.is_valid(record)

        dropped += carry_over(old, fresh, is_kept)
        cells = dict.fromkeys([*(record.cell for record in dropped), *postponed])
        again = [self._selected[cell] for cell in cells if cell in self._selected]
        if again and not interrupted:
            folder = str(fresh.folder.path)
            if len(ended) > 1:  # the time of a part is not the time of the complete model
                del self._used_seconds[folder]
            opsets = make_opset_jobs(self._project, again)
            update = {"folder": folder, "opsets": opsets, "part": 0}
            return self._make_task(job.model_copy(update=update))
        if count := sum(record.cell in self._planned for record in dropped):
            self._observer.on_note(f"{model}: {count} earlier results are stale and were dropped")
        self._stored.replace_model(model, fresh, self._store_writer.adopt)
        if note := self._store_writer.put(built, fresh.folder):
            self._observer.on_note(note)
        self._observer.on_model_done(model)
        return None
