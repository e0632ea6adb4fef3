"""A Dask cluster of several hosts on this machine, whose processes can be killed.

Each host is a process with a working folder of its own, so nothing is shared but the machine.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
_PRELOAD = "tests.faults.dask_host"


class Cluster:
    """A scheduler and hosts.

    Args:
        folder: The folder for the hosts and their journal.
        hosts: The number of hosts.
        threads: The jobs of a host.
        preload: A module that each host imports, or "" for the real workers.
    """

    def __init__(self, folder: Path, hosts: int, threads: int = 1, preload: str = _PRELOAD) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = find_port()
        self._threads = threads
        self._preload = preload
        self.scheduler = self.start_scheduler()
        self.hosts: dict[str, subprocess.Popen[bytes]] = {}
        for number in range(hosts):
            self.start_host(f"host{number}")

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def start_scheduler(self) -> subprocess.Popen[bytes]:
        module = "distributed.cli.dask_scheduler"
        arguments = ["--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"]
        return self._start("scheduler", module, *arguments)

    def start_host(self, name: str, **environment: str) -> None:
        arguments = [self.address, "--host", "127.0.0.1", "--no-nanny", "--no-dashboard"]
        arguments += [
            "--nthreads",
            str(self._threads),
            "--local-directory",
            str(self.folder / name),
        ]
        arguments += ["--preload", self._preload] if self._preload else []
        module = "distributed.cli.dask_worker"
        self.hosts[name] = self._start(name, module, *arguments, **environment)

    def _start(
        self, name: str, module: str, *arguments: str, **more: str
    ) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "FAULTS_FOLDER": str(self.folder), **more}
        environment["PYTHONPATH"] = more.get("PYTHONPATH", str(REPOSITORY))
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """End a host at once, as if its power failed."""
        process = self.hosts[name]
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for process in (*self.hosts.values(), self.scheduler):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def wait_for_hosts(self, count: int, seconds: float = 60.0) -> None:
        """Wait until so many hosts are connected."""
        from distributed import Client

        with Client(self.address, timeout=seconds, set_as_default=False) as client:
            until = time.monotonic() + seconds
            while len(client.scheduler_info(n_workers=-1)["workers"]) < count:
                assert time.monotonic() < until, "the hosts do not start"
                time.sleep(0.1)


def find_port() -> int:
    """Return a port that no program uses."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
