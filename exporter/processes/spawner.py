"""Define how a worker process is started, and start a new Python for each job.

`Spawner` works on every platform. `ForkServerStarter` is the faster one for Linux.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from exporter.processes.lifetime import list_descendants

#: Seconds in which an interrupted program stores its finished results.
_GRACE = 10.0


def run_program(
    command: Sequence[str],
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
    seconds: float | None = None,
) -> int:
    """Run a program and return its exit code, less than 0 for a signal.

    Args:
        command: The program and its arguments.
        environment: All variables of the process.
        on_line: Called with each line of stdout and stderr.
        seconds: The time after which the program and its children are killed.
    """
    process = subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        encoding="utf-8",
        errors="replace",
    )
    deadline = threading.Timer(seconds or 0, signal_group, (process.pid, signal.SIGKILL))
    if seconds is not None:
        deadline.start()
    try:
        for line in process.stdout or ():
            on_line(line.rstrip("\n"))
        return process.wait()
    except BaseException:
        signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            signal_group(process.pid, signal.SIGKILL)
            process.wait()
        raise
    finally:
        deadline.cancel()
        if process.stdout:
            process.stdout.close()


WORKER_COMMAND = (sys.executable, "-P", "-m", "exporter.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCommand:
    """The arguments of a worker."""

    job: Path
    log: Path
    """The output is appended to this file."""
    folder: Path
    """The current directory."""
    captures: bool = False
    """Whether it captures a program, for which a fork server then imports the modules once."""


class WorkerProcess(Protocol):
    """A started worker."""

    @property
    def pid(self) -> int:
        """The worker, which leads a process group."""

    @property
    def is_lost(self) -> bool:
        """Whether the worker ended because the fork server did."""

    def poll(self) -> int | None:
        """Return the exit code, less than 0 for a signal, or None while the worker runs."""

    def wait(self, seconds: float) -> bool:
        """Wait for the exit and return True if the worker exited in time."""

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the worker and its child processes."""


class ProcessStarter(Protocol):
    """Starts workers."""

    def prepare(self) -> None:
        """Begin the preparations of the first start. `close` is necessary in any case."""

    def start(self, command: WorkerCommand) -> WorkerProcess:
        """Start a worker."""

    def sleep(self, seconds: float) -> None:
        """Wait, but not longer than until a worker exits."""

    def close(self) -> None:
        """End all processes that this object keeps."""


class Spawner:
    """Starts a new Python for each job.

    Args:
        environment: The complete environment of the workers.
        command: The command line, to which the path of the job is added.
    """

    def __init__(
        self, environment: Mapping[str, str], command: Sequence[str] = WORKER_COMMAND
    ) -> None:
        self._environment = dict(environment)
        self._command = command

    def prepare(self) -> None:
        """Do nothing: there are no preparations."""

    def start(self, command: WorkerCommand) -> WorkerProcess:
        """Start a worker."""
        with command.log.open("ab") as output:
            process = subprocess.Popen(
                [*self._command, str(command.job)],
                cwd=command.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return _SpawnedWorker(process)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def close(self) -> None:
        """Do nothing: no process is kept."""


class _SpawnedWorker:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._descendants: set[int] = set()
        self.pid = process.pid

    @property
    def is_lost(self) -> bool:
        return False

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def signal_group(self, number: signal.Signals) -> None:
        # Some may have left the group, and no fork server adopts them when the worker ends.
        self._descendants.update(list_descendants(self.pid))
        signal_group(self.pid, number)
        for pid in self._descendants:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def signal_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to a process group, if any of its processes exists."""
    # macOS refuses to signal a group of zombies: PermissionError.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
