"""One process per job on this machine, several at once.

In: tasks. Out: outcomes, to a listener. Each worker leads a process group of its own, so that
whatever it starts ends with it.
"""

from __future__ import annotations

import math
import signal
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from exporter.build.engine.job_monitor import JobMonitor
from exporter.build.engine.protocol import (
    ExitKind,
    JobEvents,
    JobResult,
    Task,
)
from exporter.jobs.job_folder import JobFolder, write_json
from exporter.processes.spawner import ProcessStarter, WorkerCommand

_POLL = 0.1  # seconds between two looks
_GRACE = 1.0  # seconds between asking a worker to end and making it


class LocalEngine:
    """Runs several workers at once.

    Args:
        workers: How many at once.
        starter: Starts them.
    """

    def __init__(self, workers: int, starter: ProcessStarter) -> None:
        self._workers = workers
        self._starter = starter

    @property
    def workers(self) -> int:
        """How many at once."""
        return self._workers

    def run(self, tasks: Sequence[Task], listener: JobEvents) -> None:
        """Runs all tasks and those that the listener adds; leaves nothing running, ever.

        Raises:
            KeyboardInterrupt: after the jobs at work were ended and the listener heard of each.
        """
        waiting = deque(tasks)
        running: list[_Worker] = []
        try:
            while waiting or running:
                self._fill(running, waiting)
                self._starter.sleep(_POLL)
                for worker in tuple(running):
                    worker.watch.report_news(listener)
                    if outcome := worker.outcome():
                        running.remove(worker)
                        # First of all: what the end means is worked out while the next one works.
                        self._fill(running, waiting)
                        if task := listener.on_job_end(outcome):
                            waiting.appendleft(task)
        except KeyboardInterrupt:
            _end_all(running)
            for worker in running:
                listener.on_job_end(worker.interrupted())
            raise
        finally:
            for worker in running:
                worker.kill()
            self._starter.close()

    def _fill(self, running: list[_Worker], waiting: deque[Task]) -> None:
        while waiting and len(running) < self._workers:
            running.append(_Worker(waiting.popleft(), self._starter))


class _Worker:
    """A process at work on one task."""

    def __init__(self, task: Task, starter: ProcessStarter) -> None:
        folder = JobFolder(Path(task.job.folder))
        # In this order: whenever this process is killed, what lies there tells what was at work.
        write_json(folder.job, task.job)
        # What an earlier worker announced in this folder is not what this one does.
        folder.announcement.unlink(missing_ok=True)
        log = folder.log(None)
        log.parent.mkdir(parents=True, exist_ok=True)
        self.watch = JobMonitor(task.job, folder)
        self._task = task
        start = WorkerCommand(job=folder.job, log=log, folder=Path(task.job.root))
        self._process = starter.start(start)
        self._started = time.monotonic()

    def outcome(self) -> JobResult | None:
        """How it ended; None while it is at work within its time."""
        code = self._process.poll()
        if code is not None:
            self._process.signal_group(signal.SIGKILL)
            return self._as(ExitKind.EXITED if code >= 0 else ExitKind.SIGNAL, abs(code))
        if self._seconds() > self._task.seconds:
            _end_all([self])
            return self._as(ExitKind.TIMEOUT, 0)
        self.watch.truncate_logs()
        return None

    def interrupted(self) -> JobResult:
        """The outcome of a worker that was ended with the run."""
        return self._as(ExitKind.INTERRUPTED, 0)

    def ask(self) -> None:
        """Asks the worker to end."""
        if self._process.poll() is None:
            self._process.signal_group(signal.SIGTERM)

    def wait(self, seconds: float) -> None:
        """Waits for its end, up to so long."""
        self._process.wait(max(seconds, 0.0))

    def kill(self) -> None:
        """Ends the worker and everything that it started."""
        if self._process.poll() is None:
            self._process.signal_group(signal.SIGKILL)
            self._process.wait(math.inf)
        self._process.signal_group(signal.SIGKILL)

    def _as(self, ended: ExitKind, code: int) -> JobResult:
        return JobResult(
            job=self._task.job,
            exit_kind=ended,
            code=code,
            last_announcement=self.watch.announcement(),
            seconds=self._seconds(),
        )

    def _seconds(self) -> float:
        return time.monotonic() - self._started


def _end_all(workers: Sequence[_Worker]) -> None:
    """Ends workers with a moment's notice; on Ctrl-C meanwhile, without."""
    with suppress(KeyboardInterrupt):
        for worker in workers:
            worker.ask()
        until = time.monotonic() + _GRACE
        for worker in workers:
            worker.wait(until - time.monotonic())
    for worker in workers:
        worker.kill()
