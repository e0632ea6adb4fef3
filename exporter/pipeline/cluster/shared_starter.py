"""Start workers from several threads by one fork server.

A Dask worker has one thread for each job, and a fork server imports torch once for all of them.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

from exporter.processes.spawner import ProcessStarter, WorkerCommand, WorkerProcess

#: Seconds between two looks at a worker, which read its folder.
_POLL_INTERVAL = 0.05


class SharedStarter:
    """A starter with a lock around each of its calls."""

    def __init__(self, starter: ProcessStarter) -> None:
        self.lock = threading.RLock()
        self.starter = starter

    def close(self) -> None:
        """End the fork server and free its memory. The next start creates another one."""
        with self.lock:
            self.starter.close()


class JobStarter:
    """The starter of one job.

    Args:
        shared: The starter of all jobs.
        is_cancelled: Returns True if the job must end.
    """

    def __init__(self, shared: SharedStarter, is_cancelled: Callable[[], bool]) -> None:
        self._shared = shared
        self._is_cancelled = is_cancelled

    def prepare(self) -> None:
        """Do nothing: the first job of the host prepares the starter."""

    def start(self, command: WorkerCommand) -> WorkerProcess:
        """Start a worker."""
        with self._shared.lock:
            return _LockedWorker(self._shared.starter.start(command), self._shared.lock)

    def sleep(self, seconds: float) -> None:
        """Wait.

        Raises:
            KeyboardInterrupt: if the job must end; the engine then ends its worker.
        """
        time.sleep(min(seconds, _POLL_INTERVAL))
        if self._is_cancelled():
            raise KeyboardInterrupt

    def close(self) -> None:
        """Do nothing: other jobs use the starter."""


class _LockedWorker:
    def __init__(self, worker: WorkerProcess, lock: threading.RLock) -> None:
        self._worker = worker
        self.pid = worker.pid
        self._lock = lock

    @property
    def is_lost(self) -> bool:
        return self._worker.is_lost

    def poll(self) -> int | None:
        with self._lock:
            return self._worker.poll()

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < until:
            time.sleep(_POLL_INTERVAL)
        return self.poll() is not None

    def signal_group(self, number: signal.Signals) -> None:
        with self._lock:
            self._worker.signal_group(number)
