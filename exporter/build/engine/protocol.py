"""What every engine takes and answers.

In: tasks, each a `Job` and the time that it may take. Out: calls of a `JobEvents` while the jobs
run, and one `JobResult` per job. An engine says how a job ended; what that means for its cells is
decided in `run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from exporter.jobs.job import Announcement, Job
from exporter.records.record import Record


class ExitKind(StrEnum):
    """How a job ended, as seen from outside."""

    EXITED = "exited"
    """By itself, with an exit code; 0 alone does not mean that it finished its cells."""
    SIGNAL = "signal"
    """By a signal that the engine did not send."""
    TIMEOUT = "timeout"
    """The engine ended it, because its time was over."""
    INTERRUPTED = "interrupted"
    """The engine ended it, because the run was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A job, and the seconds that it may take."""

    job: Job
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """How one job ended."""

    job: Job
    exit_kind: ExitKind
    code: int
    """The exit code; of a signal, its number."""
    last_announcement: Announcement | None
    """The worker's last announcement; None where it made none."""
    seconds: float
    """Wall time from start to end."""


class JobEvents(Protocol):
    """Hears what happens while jobs run; called from the thread that called `Engine.run`."""

    def on_announcement(self, announcement: Announcement) -> None:
        """The worker is about to do this."""

    def on_record(self, record: Record) -> None:
        """The worker has finished a cell and gone on to another."""

    def on_job_end(self, outcome: JobResult) -> Task | None:
        """The job is over; the answer runs in its place, at once."""


class Engine(Protocol):
    """Runs jobs, each apart from the others."""

    @property
    def workers(self) -> int:
        """How many jobs it runs at once."""

    def run(self, tasks: Sequence[Task], listener: JobEvents) -> None:
        """Runs all tasks and those that the listener adds; leaves nothing running, ever.

        Raises:
            KeyboardInterrupt: after the jobs at work were ended and the listener heard of each.
        """
