"""What becomes of jobs as they end: records, further tries, folders put into place.

In: what an engine tells of its workers. Out: `build/<model>` for each model, calls of a `BuildObserver`,
and the tasks that have to follow.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from exporter.build.decisions.build_results import RecordValidator
from exporter.build.decisions.cell_decisions import Decisions
from exporter.build.decisions.store_writer import StoreWriter
from exporter.build.engine import (
    Engine,
    ExitKind,
    JobResult,
    Task,
)
from exporter.build.execute.job_outcome import evaluate_job, read_log_tail, restrict_job
from exporter.build.execute.split_jobs import SplitJobs, join_folders
from exporter.build.folder.build_folder import BuildFolder
from exporter.build.folder.carry_over import carry_over, repair_folder
from exporter.build.folder.flakiness import mark_flaky
from exporter.build.schedule.tasks import make_opset_jobs
from exporter.core.errors import ExitCode, ExporterError
from exporter.jobs.job import Announcement, Job
from exporter.jobs.job_folder import JobFolder, write_json
from exporter.manifest import Manifest
from exporter.planning.plan import Plan
from exporter.records.record import Record, Status


class BuildObserver(Protocol):
    """Is told what happens, to show it."""

    def on_decisions(self, decisions: Decisions) -> None:
        """These cells run, for these reasons; told once, before all else."""

    def on_announcement(self, announcement: Announcement) -> None:
        """These cells are at this stage now."""

    def on_cell_done(self, record: Record) -> None:
        """This cell is done; the record is as it counts."""

    def on_model_done(self, model: str) -> None:
        """Everything of the model is in place."""

    def on_note(self, message: str) -> None:
        """Something that a person may want to know."""


class Supervisor:
    """Listens to the engine: settles cells, sends others again, puts folders into place."""

    def __init__(
        self,
        manifest: Manifest,
        plan: Plan,
        build: BuildFolder,
        judge: RecordValidator,
        watcher: BuildObserver,
        keeper: StoreWriter,
    ) -> None:
        self._project = manifest.project
        self._planned = {str(planned.cell) for planned in plan.cells}
        self._selected = {str(planned.cell): planned for planned in plan.to_run}
        self._build = build
        self._judge = judge
        self._watcher = watcher
        self._keeper = keeper
        self._parts = SplitJobs(())
        self._told: set[str] = set()
        self._spent: Counter[str] = Counter()
        self._postponed: dict[str, list[str]] = {}

    def run(self, engine: Engine, tasks: Sequence[Task]) -> None:
        """Runs the tasks and whatever has to follow them.

        Raises:
            ExporterError: ENVIRONMENT, where a worker found that it cannot work here.
            KeyboardInterrupt: after what is done was put into place.
        """
        self._parts = SplitJobs(tasks)
        try:
            engine.run(tasks, self)
        except KeyboardInterrupt:
            for jobs in self._parts.leave():
                self._finish(jobs, interrupted=True)
            raise

    def on_announcement(self, announcement: Announcement) -> None:
        """The worker is about to do this."""
        self._watcher.on_announcement(announcement)

    def on_record(self, record: Record) -> None:
        """The worker has finished a cell and gone on to another."""
        self._tell(record)

    def on_job_end(self, outcome: JobResult) -> Task | None:
        """Settles what the end of the job says; the answer is the job for the cells left over.

        Raises:
            ExporterError: ENVIRONMENT, where the worker found that it cannot work here.
        """
        _refuse_environment(outcome)
        job = outcome.job
        folder = JobFolder(Path(job.folder))
        repair_folder(folder)
        verdict = evaluate_job(outcome, folder.read_records())
        for cell in job.cells():
            record = verdict.settled.get(str(cell))
            if record and self._counts(record):
                write_json(folder.record(cell), record)
                self._tell(record)
            else:
                folder.record(cell).unlink(missing_ok=True)
            if record and not self._counts(record):
                self._postponed.setdefault(cell.model, []).append(str(cell))
        self._spent[job.folder] += math.ceil(outcome.seconds)
        if verdict.retry:
            return self._task(restrict_job(job, verdict.retry))
        interrupted = outcome.exit_kind is ExitKind.INTERRUPTED
        ended = self._parts.ended(job)
        return self._finish(ended, interrupted=interrupted) if ended else None

    def _counts(self, record: Record) -> bool:
        """Whether the record settles its cell.

        Two workers that hold the same model may take more memory than there is: whoever of them is
        killed gets another try, alone.
        """
        return record.status is not Status.KILLED or not self._parts.is_part(record.cell.model)

    def _tell(self, record: Record) -> None:
        if str(record.cell) not in self._told and self._counts(record):
            self._told.add(str(record.cell))
            self._watcher.on_cell_done(self._judge.apply_expectations(record))

    def _task(self, job: Job) -> Task:
        """The job for the time that is left of its model's."""
        return Task(job=job, seconds=max(job.spec.timeout - self._spent[job.folder], 1.0))

    def _finish(self, jobs: Sequence[Job], *, interrupted: bool) -> Task | None:
        """Puts what a model's jobs made into place.

        Returns:
            A job for what cannot be kept beside it, or has to be tried again.
        """
        job = jobs[0]
        model = job.spec.id
        folder, lost = join_folders([JobFolder(Path(job.folder)) for job in jobs])
        postponed = [] if interrupted else self._postponed.pop(model, [])
        if not folder.read_records() and not postponed:
            return None  # interrupted before its first cell: what is in place stays
        mark_flaky(self._build.model_folder(model), folder)
        made = tuple(folder.read_records().values())
        lost += carry_over(
            self._build.model_folder(model),
            folder,
            lambda record: self._holds(record) and str(record.cell) not in postponed,
        )
        names = dict.fromkeys([*(str(record.cell) for record in lost), *postponed])
        again = [self._selected[name] for name in names if name in self._selected]
        if again and not interrupted:
            if len(jobs) > 1:  # no part's time is that of a worker that does it all
                del self._spent[str(folder.path)]
            opsets = make_opset_jobs(self._project, again)
            update = {"folder": str(folder.path), "opsets": opsets, "part": 0}
            return self._task(job.model_copy(update=update))
        if dropped := sum(str(record.cell) in self._planned for record in lost):
            self._watcher.on_note(
                f"{model}: {dropped} earlier results no longer hold and were dropped"
            )
        self._build.replace_model(model, folder, self._keeper.adopt)
        if note := self._keeper.keep(made, self._build.model_folder(model)):
            self._watcher.on_note(note)
        self._watcher.on_model_done(model)
        return None

    def _holds(self, record: Record) -> bool:
        return str(record.cell) in self._planned and self._judge.holds(record)


def _refuse_environment(outcome: JobResult) -> None:
    unusable = outcome.exit_kind is ExitKind.EXITED and outcome.code == ExitCode.ENVIRONMENT
    # A model may exit with any code; the environment is checked before anything is announced.
    if unusable and outcome.last_announcement is None:
        lines = read_log_tail(outcome.job, None).splitlines()
        raise ExporterError(ExitCode.ENVIRONMENT, lines[-1] if lines else "workers cannot start")
