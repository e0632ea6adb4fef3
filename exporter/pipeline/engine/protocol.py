"""Define the interface of an engine.

An engine reports how a job ended. `build.execute` decides about the cells: `JobEvents` can
return a new task. `BuildObserver` only receives finished decisions and returns nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from exporter.jobs.job import Announcement, Job
from exporter.records.record import Record


class ExitKind(StrEnum):
    """The end of a job as the engine observes it."""

    EXITED = "exited"
    """With an exit code. The code 0 does not prove that all cells are finished."""
    SIGNAL = "signal"
    """By a signal that the engine did not send."""
    SERVER_END = "server_end"
    """With the fork server, for which another job can be the reason."""
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


class JobEvents(Protocol):
    """Receives the events of jobs, in the thread that called `Engine.run`."""

    def on_announcement(self, announcement: Announcement) -> None:
        """Handle the start of a stage."""

    def on_record(self, record: Record) -> None:
        """Handle a finished cell, when the worker has announced the next one."""

    def on_job_end(self, result: JobResult) -> Task | None:
        """Handle the end of a job, and return a task to run next, or None."""


class Engine(Protocol):
    """Runs jobs, each in its own process."""

    @property
    def workers(self) -> int:
        """The number of jobs that run in parallel."""

    @property
    def local_workers(self) -> int:
        """The number of jobs that this machine can run in parallel, for other exports."""

    def run(self, tasks: Sequence[Task], events: JobEvents) -> None:
        """Run all tasks and those that `events` returns. No process is left behind.

        Raises:
            KeyboardInterrupt: after all running jobs were ended and reported.
        """
