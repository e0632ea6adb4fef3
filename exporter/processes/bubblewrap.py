"""A sandbox by Bubblewrap: namespaces with few files, no network, no other process."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from exporter.processes.spawner import WORKER_COMMAND, Spawner, WorkerCommand, WorkerProcess

_PROGRAM = "bwrap"
#: `--die-with-parent` ends the worker with the program. `--unshare-all` includes the network.
_ISOLATED = ("--unshare-all", "--die-with-parent", "--ro-bind", "/", "/")
#: A private /proc lists no other process; a private /dev has the usual devices without disks.
_SYSTEM = ("--proc", "/proc", "--dev", "/dev")
#: GPUs, which a private /dev lacks.
_GPUS = ("nvidia*", "dri", "kfd", "dxg")
#: Seconds for the trial.
_LIMIT = 20.0


class BubblewrapStarter(Spawner):
    """Starts each worker in a sandbox of its own.

    Args:
        environment: The complete environment of the workers.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(environment)
        self._gpus = tuple(_list_gpus())

    def start(self, command: WorkerCommand) -> WorkerProcess:
        """Start a worker that can write only to its folders."""
        for path in command.writable:
            path.mkdir(exist_ok=True)
        writable = [word for path in command.writable for word in ("--bind", str(path), str(path))]
        prefix = (_PROGRAM, *_ISOLATED, *_SYSTEM, *self._gpus, *writable, "--")
        return _SandboxedWorker(self.spawn((*prefix, *WORKER_COMMAND), command))


class _SandboxedWorker:
    """A worker whose end Bubblewrap reports: 128 + N if signal N ended it."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self.pid = process.pid

    @property
    def is_lost(self) -> bool:
        return self._process.is_lost

    def poll(self) -> int | None:
        code = self._process.poll()
        return 128 - code if code is not None and code > 128 else code

    def wait(self, seconds: float) -> bool:
        return self._process.wait(seconds)

    def signal_group(self, number: signal.Signals) -> None:
        self._process.signal_group(number)


def find_obstacle() -> str:
    """Return why the system does not offer the sandbox, or "" if it does."""
    if sys.platform != "linux":
        return "only Linux has Bubblewrap"
    if not shutil.which(_PROGRAM):
        return f"the program {_PROGRAM} is not installed"
    trial = subprocess.run(
        (_PROGRAM, *_ISOLATED, *_SYSTEM, "--", "true"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_LIMIT,
        check=False,
    )
    return f"this system refuses it ({trial.stderr.strip()})" if trial.returncode else ""


def _list_gpus() -> list[str]:
    devices = (path for name in _GPUS for path in sorted(Path("/dev").glob(name)))
    return [word for path in devices for word in ("--dev-bind-try", str(path), str(path))]
