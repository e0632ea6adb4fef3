"""A nursery whose parent goes at the worst moments takes its workers and their children along."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux forks")

# Notes itself and a child that would outlive it.
WORKER = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
with open("pids", "a") as pids:
    pids.write(f"{os.getpid()} {child.pid}\\n")
time.sleep(float(open("seconds").read()))
"""


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "seconds").write_text("600")
    nursery = Nursery(tmp_path)
    yield nursery
    nursery.end()


class Nursery:
    """A nursery, and the parent's ends of its pipes."""

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
        assert json.loads(self.words.readline()) == {"ready": 1}

    def order(self, number: int) -> None:
        here = str(self._folder)
        words = {"start": number, "job": "job", "log": f"{here}/log", "folder": here}
        self.orders.write(json.dumps(words).encode() + b"\n")

    def end(self) -> None:
        self.orders.close()
        self.words.close()
        self.process.wait(30)

    def left(self) -> list[str]:
        """The processes that stand in the folder, once there was time for them to end."""
        until = time.monotonic() + 10
        while (found := standing_in(self._folder)) and time.monotonic() < until:
            time.sleep(0.05)
        return found


def started(folder: Path) -> list[str]:
    pids = folder / "pids"
    until = time.monotonic() + 30
    while not (pids.exists() and pids.read_text().endswith("\n")):
        assert time.monotonic() < until
        time.sleep(0.01)
    return pids.read_text().split()


def standing_in(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                found.append(process.name)
        except OSError:
            pass  # it ended, or is another's
    return found


@pytest.mark.parametrize("seconds", ["600", "0"])
def test_nobody_hears_of_a_worker_that_was_started(
    nursery: Nursery, tmp_path: Path, seconds: str
) -> None:
    nursery.order(1)
    assert set(started(tmp_path)) <= set(standing_in(tmp_path))
    (tmp_path / "seconds").write_text(seconds)
    nursery.words.close()
    nursery.order(2)
    assert nursery.process.wait(30) == 0
    assert nursery.left() == []
    assert (tmp_path / "errors.log").read_text() == ""


def test_the_orders_end_while_workers_are_being_started(nursery: Nursery, tmp_path: Path) -> None:
    nursery.order(1)
    started(tmp_path)
    for number in range(2, 10):
        nursery.order(number)
    nursery.orders.close()
    assert nursery.process.wait(30) == 0
    assert nursery.left() == []
    assert (tmp_path / "errors.log").read_text() == ""
