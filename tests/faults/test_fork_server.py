"""If the parent of a fork server ends at any time, the workers and their children end too."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux forks")

# Writes its ID and the ID of a child that sleeps longer.
WORKER = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
with open("pids", "a") as pids:
    pids.write(f"{os.getpid()} {child.pid}\\n")
time.sleep(float(open("seconds").read()))
"""


SECRET = b"0123456789abcdef" * 2


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServerProcess]:
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "seconds").write_text("600")
    server = ForkServerProcess(tmp_path)
    yield server
    server.end()


class ForkServerProcess:
    """A fork server with the parent's ends of its pipes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with (folder / "errors.log").open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "exporter.worker.fork_server", str(folder / "worker.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                start_new_session=True,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.orders, self.words = self.process.stdin, self.process.stdout
        self.orders.write(SECRET + b"\n")
        assert self.words.readline() == SECRET + b' {"ready": 1}\n'

    def order(self, number: int) -> None:
        folder_name = str(self._folder)
        words = {"start": number, "job": "job", "log": f"{folder_name}/log", "folder": folder_name}
        self.orders.write(json.dumps(words).encode() + b"\n")

    def end(self) -> None:
        self.orders.close()
        self.words.close()
        self.process.wait(30)

    def left(self) -> list[str]:
        """Return the processes in the folder that did not end in time."""
        until = time.monotonic() + 10
        while (running := list_processes(self._folder)) and time.monotonic() < until:
            time.sleep(0.05)
        return running


def started(folder: Path) -> list[str]:
    pids = folder / "pids"
    until = time.monotonic() + 30
    while not (pids.exists() and pids.read_text().endswith("\n")):
        assert time.monotonic() < until
        time.sleep(0.01)
    return pids.read_text().split()


def list_processes(folder: Path) -> list[str]:
    running = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                running.append(process.name)
        except OSError:
            pass  # it ended, or belongs to another user
    return running


@pytest.mark.parametrize("seconds", ["600", "0"])
def test_a_closed_output_pipe_ends_the_fork_server(
    server: ForkServerProcess, tmp_path: Path, seconds: str
) -> None:
    server.order(1)
    assert set(started(tmp_path)) <= set(list_processes(tmp_path))
    (tmp_path / "seconds").write_text(seconds)
    server.words.close()
    server.order(2)
    assert server.process.wait(30) == 0
    assert server.left() == []
    assert (tmp_path / "errors.log").read_text() == ""


def test_a_closed_input_pipe_ends_the_fork_server(
    server: ForkServerProcess, tmp_path: Path
) -> None:
    server.order(1)
    started(tmp_path)
    for number in range(2, 10):
        server.order(number)
    server.orders.close()
    assert server.process.wait(30) == 0
    assert server.left() == []
    assert (tmp_path / "errors.log").read_text() == ""
