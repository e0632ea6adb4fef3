"""Cost of a command: wall time, CPU time, and memory of all its processes.

Input: a command and its directory. Output: `Spent`. Memory is the proportional set size (PSS),
which counts shared pages once; Linux only.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class MemorySample:
    """The memory of all processes of a command at one moment, in bytes."""

    time: float
    """Seconds since the epoch."""
    anonymous: int
    """Without swap, this memory cannot be freed."""
    mapped: int
    """Pages of files, which the kernel can drop and read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The cost of one command."""

    code: int
    wall: float
    """Wall time in seconds."""
    cpu: float
    """CPU seconds with those of its children."""
    peak: int
    """Peak bytes of all processes together; of the largest one if memory was not sampled."""
    samples: tuple[MemorySample, ...] = ()
    """The memory over time."""
    output: str
    """Both streams."""


class Failed(Exception):
    """A command of a benchmark did not do its task."""


def spend(
    command: Sequence[str],
    folder: Path,
    more: Mapping[str, str] | None = None,
    *,
    every: float = 0.0,
) -> Spent:
    """Run a command to its end.

    Args:
        command: Program and arguments.
        folder: Its current directory.
        more: Added to the environment.
        every: Seconds between two measurements of memory, or 0 for none.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(more or {})}
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        watcher = _Watcher(process.pid, every)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        samples = watcher.stop()
        output.seek(0)
        said = output.read().decode("utf-8", "replace")
    return Spent(
        code=process.returncode,
        wall=wall,
        cpu=usage.ru_utime + usage.ru_stime,
        peak=max((each.anonymous + each.mapped for each in samples), default=usage.ru_maxrss << 10),
        samples=tuple(samples),
        output=said,
    )


def must(spent: Spent, expected: str = "", code: int = 0) -> Spent:
    """Run a command that must succeed.

    Raises:
        Failed: The exit code or the output is not as expected.
    """
    if spent.code != code or expected not in spent.output:
        raise Failed(f"exit code {spent.code}, '{expected}' is expected:\n{spent.output[-4000:]}")
    return spent


class _Watcher:
    """Measures the memory of a process and its descendants until it is stopped."""

    def __init__(self, pid: int, every: float) -> None:
        self._pid, self._every = pid, every
        self._samples: list[MemorySample] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        if every:
            self._thread.start()

    def stop(self) -> list[MemorySample]:
        """Return what was measured."""
        self._done.set()
        if self._every:
            self._thread.join()
        return self._samples

    def _watch(self) -> None:
        while not self._done.wait(self._every):
            now = time.time()  # a measurement takes a while, and a phase may end in it
            parts = [proportional(pid) for pid in tree(self._pid)]
            anonymous, mapped = (sum(column) for column in zip(*parts, strict=True))
            self._samples.append(MemorySample(now, anonymous, mapped))


def tree(root: int) -> list[int]:
    """Return the process and its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue  # it ended
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def proportional(pid: int) -> tuple[int, int]:
    """Return bytes of anonymous memory and of mapped files, shared pages by their share."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0, 0
    sizes = {
        name: int(size.split()[0]) * 1024 for name, _, size in (x.partition(":") for x in lines)
    }
    file = sizes.get("Pss_File", 0)
    return sizes.get("Pss", 0) - file, file
