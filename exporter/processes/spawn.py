"""How a worker process is started, and what the engine needs to know of it then.

In: the path of a job. Out: a `WorkerProcess` process that leads a process group of its own.

`Spawner` starts a new Python for each job, everywhere. `warm.py` has the quicker one for Linux.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

WORKER = (sys.executable, "-P", "-m", "exporter.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCommand:
    """What to start."""

    job: Path
    log: Path
    """Where its output goes, at the end of what is there."""
    folder: Path
    """Its current directory."""


class WorkerProcess(Protocol):
    """A process that was started."""

    def poll(self) -> int | None:
        """The exit code, less than 0 for a signal; None while it runs."""

    def wait(self, seconds: float) -> bool:
        """Waits for its end, up to so long; whether it ended."""

    def signal_group(self, number: signal.Signals) -> None:
        """Sends a signal to it and to all that it started, as far as they are there."""


class ProcessStarter(Protocol):
    """Starts processes."""

    def prepare(self) -> None:
        """Begins with what the first start waits for; to be closed though nothing is started."""

    def start(self, start: WorkerCommand) -> WorkerProcess:
        """Starts one."""

    def rest(self, seconds: float) -> None:
        """Waits so long, or less where one of them ends."""

    def close(self) -> None:
        """Ends whatever it keeps for starting more."""


class Spawner:
    """A new Python for each job.

    Args:
        environment: The environment of every worker, complete.
        command: What to start; the path of the job is added to it.
    """

    def __init__(self, environment: Mapping[str, str], command: Sequence[str] = WORKER) -> None:
        self._environment = dict(environment)
        self._command = command

    def prepare(self) -> None:
        """Has nothing to begin with."""

    def start(self, start: WorkerCommand) -> WorkerProcess:
        """Starts one."""
        with start.log.open("ab") as output:
            process = subprocess.Popen(
                [*self._command, str(start.job)],
                cwd=start.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return _Spawned(process)

    def rest(self, seconds: float) -> None:
        """Waits so long."""
        time.sleep(seconds)

    def close(self) -> None:
        """Keeps nothing."""


class _Spawned:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def signal_group(self, number: signal.Signals) -> None:
        signal_group(self._process.pid, number)


def signal_group(leader: int, number: signal.Signals) -> None:
    """Sends a signal to the group of a process; nothing where none of it is left."""
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        pass  # nothing of the group is left
    except PermissionError:
        pass  # what is left of it are zombies, which macOS refuses to signal
