"""The interface of an engine, which runs jobs, and the engine of parallel local processes."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeVar

from exporter.core.files import CELL_LIMIT, empty_regular_file
from exporter.jobs import Announcement, Job, JobFolder, write_json
from exporter.processes.fork_server_client import ProcessStarter, WorkerCommand
from exporter.processes.lifetime import CpuLimit
from exporter.records.record import Record


class ExitKind(StrEnum):
    """The end of a job as the engine observes it."""

    EXITED = "exited"
    """The worker returned an exit code. The code 0 does not prove that all cells are finished."""
    SIGNAL = "signal"
    """A signal that the engine did not send killed the worker."""
    SERVER_END = "server_end"
    """The fork server ended and took its workers along; another job can be the reason."""
    TIMEOUT = "timeout"
    """The engine ended the job at its limit of CPU time, or of a long wall time."""
    SILENCE = "silence"
    """The engine ended the job because it used no CPU time and made no progress."""
    INTERRUPTED = "interrupted"
    """The engine ended the job because the run was interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A job with its limit of CPU time, which does not depend on the load of the machine."""

    job: Job
    seconds: float
    """CPU time of the worker and its descendants."""
    is_alone: bool = False
    """Whether no other job may run at the same time, because they exceeded the machine together."""


def may_start(task: Task, running: Collection[Task]) -> bool:
    """Return whether the task may run beside the running ones."""
    return not running or not (task.is_alone or any(each.is_alone for each in running))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """The end of a job."""

    job: Job
    exit_kind: ExitKind
    code: int
    """The exit code, or the number of the signal."""
    last_announcement: Announcement | None
    """None if the worker made none."""
    seconds: float
    """CPU time of the worker and its descendants."""
    has_company: bool = False
    """Whether another job ran at the same time, so the job may succeed if it runs alone."""


class JobEvents(Protocol):
    """Receives the events of running jobs, in the thread that iterates over `Engine.run`."""

    def on_announcement(self, announcement: Announcement) -> None:
        """Handle the start of a stage."""

    def on_record(self, record: Record) -> None:
        """Handle a finished cell, when the worker has announced the next one."""


class Engine(Protocol):
    """Runs jobs, each in its own process.

    An engine only reports how a job ended. The caller decides about the cells.
    """

    @property
    def workers(self) -> int:
        """The number of jobs that run in parallel."""

    @property
    def local_workers(self) -> int:
        """The number of jobs that this machine can run in parallel, for other exports."""

    def run(self, tasks: deque[Task], events: JobEvents) -> Generator[JobResult, None, None]:
        """Yield each job as it ends. The caller may add tasks to the left, which run next.

        No process is left behind, also if the caller closes the generator.

        Raises:
            KeyboardInterrupt: after all running jobs were ended and yielded; see `end_jobs`.
        """


_T = TypeVar("_T")


def end_jobs(results: Generator[_T, None, None], interrupt: KeyboardInterrupt) -> Iterator[_T]:
    """End the running jobs and yield their results, unless the generator did this itself."""
    with suppress(KeyboardInterrupt):
        yield results.throw(interrupt)
        yield from results


#: Bytes. An endless output must not fill the disk, and only the end of a log is needed.
_MAX_LOG_SIZE = 64 * 1024 * 1024


class JobMonitor:
    """Observes one job from its start."""

    def __init__(self, job: Job, job_folder: JobFolder) -> None:
        self._folder = job_folder
        self._cells = set(job.cells())
        self._reported: set[Path] = set()
        self.last: Announcement | None = None

    def report_news(self, events: JobEvents) -> None:
        """Report all changes since the last call."""
        # Records first: the record of a cell that is announced later cannot be among them.
        records = self._folder.read_records(skip=self._reported)
        announcement = self.read_announcement()
        if announcement is None:
            return
        for cell, record in records.items():
            if cell in self._cells and cell not in announcement.cells:
                self._reported.add(self._folder.record(cell))
                events.on_record(record)
        if announcement != self.last:
            self.last = announcement
            events.on_announcement(announcement)

    def read_announcement(self) -> Announcement | None:
        """Return the last announcement, or None if there is no valid one."""
        return Announcement.find(self._folder.announcement, CELL_LIMIT)

    def truncate_logs(self) -> None:
        """Empty large logs. Workers open them for appending and continue at offset 0."""
        for log in self._folder.log(None).parent.glob("*.log"):
            with suppress(OSError):  # a model may remove its own folder
                if log.lstat().st_size > _MAX_LOG_SIZE:
                    empty_regular_file(log)


_POLL_INTERVAL = 0.1  # seconds
_GRACE_PERIOD = 1.0  # seconds between SIGTERM and SIGKILL
_KILL_PERIOD = 120.0  # seconds; only a broken disk delays the end of a killed process longer


class LocalEngine:
    """Runs several workers in parallel.

    If `keeps_starter`, the starter stays open for another run.
    """

    def __init__(
        self, workers: int, starter: ProcessStarter, *, keeps_starter: bool = False
    ) -> None:
        self._workers = workers
        self._starter = starter
        self._keeps_starter = keeps_starter

    @property
    def workers(self) -> int:
        return self._workers

    @property
    def local_workers(self) -> int:
        """The same number: all jobs run on this machine."""
        return self._workers

    def run(self, tasks: deque[Task], events: JobEvents) -> Generator[JobResult, None, None]:
        running: list[_RunningJob] = []
        try:
            while tasks or running:
                self._start_waiting(running, tasks)
                self._starter.sleep(_POLL_INTERVAL)
                for job in tuple(running):
                    job.monitor.report_news(events)
                    if result := job.poll():
                        running.remove(job)
                        # Before the result is handled: the next job runs meanwhile.
                        self._start_waiting(running, tasks)
                        yield result
        except KeyboardInterrupt:
            _terminate(running)
            for job in running:
                yield job.make_result(ExitKind.INTERRUPTED, 0)
            raise
        finally:
            for job in running:
                job.kill()
            if not self._keeps_starter:
                self._starter.close()

    def _start_waiting(self, running: list[_RunningJob], waiting: deque[Task]) -> None:
        while waiting and len(running) < self._workers:
            if not may_start(waiting[0], [job.task for job in running]):
                return
            running.append(_RunningJob(waiting.popleft(), self._starter))
            if len(running) > 1:
                for job in running:
                    job.has_company = True


class _RunningJob:
    """A worker process with its task."""

    def __init__(self, task: Task, starter: ProcessStarter) -> None:
        job_folder = JobFolder(Path(task.job.folder))
        # The job is written first: if this process is killed, recovery needs it.
        write_json(job_folder.job, task.job)
        # The announcement of an earlier worker in this folder is not valid for this one.
        job_folder.announcement.unlink(missing_ok=True)
        log = job_folder.log(None)
        log.parent.mkdir(parents=True, exist_ok=True)
        self.monitor = JobMonitor(task.job, job_folder)
        self.task = task
        self.has_company = False
        command = WorkerCommand(
            job=job_folder.job,
            log=log,
            folder=Path(task.job.root),
            captures=any(
                opset.route.exporter in ("dynamo", "transformers") for opset in task.job.opsets
            ),
        )
        self._process = starter.start(command)
        self._limit = CpuLimit(self._process.pid, task.seconds, task.job.spec.timeout)

    def poll(self) -> JobResult | None:
        """Return the result, or None while the worker runs within its time limit."""
        code = self._process.poll()
        if code is not None:
            self._process.signal_group(signal.SIGKILL)
            if self._process.is_lost:
                return self.make_result(ExitKind.SERVER_END, abs(code))
            return self.make_result(ExitKind.EXITED if code >= 0 else ExitKind.SIGNAL, abs(code))
        if excess := self._limit.find_excess(self.monitor.last):
            _terminate([self])
            is_silent = excess == "silence"
            return self.make_result(ExitKind.SILENCE if is_silent else ExitKind.TIMEOUT, 0)
        self.monitor.truncate_logs()
        return None

    def make_result(self, exit_kind: ExitKind, code: int) -> JobResult:
        return JobResult(
            job=self.task.job,
            exit_kind=exit_kind,
            code=code,
            last_announcement=self.monitor.read_announcement(),
            seconds=self._limit.used,
            has_company=self.has_company,
        )

    def terminate(self) -> None:
        if self._process.poll() is None:
            self._process.signal_group(signal.SIGTERM)

    def wait(self, seconds: float) -> None:
        self._process.wait(max(seconds, 0.0))

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.signal_group(signal.SIGKILL)
            self._process.wait(_KILL_PERIOD)
        self._process.signal_group(signal.SIGKILL)


def _terminate(jobs: Sequence[_RunningJob]) -> None:
    """End workers by SIGTERM, then by SIGKILL. Another Ctrl-C skips the grace period."""
    with suppress(KeyboardInterrupt):
        for job in jobs:
            job.terminate()
        until = time.monotonic() + _GRACE_PERIOD
        for job in jobs:
            job.wait(until - time.monotonic())
    for job in jobs:
        job.kill()
