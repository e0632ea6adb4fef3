"""The relation of a process to its parent and to others, and its priority if memory runs out."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from exporter.core.system import IS_LINUX

_CPU_INTERVAL = 1.0  # seconds between two readings of the CPU time
_OWN_STATE = Path("/proc/self/stat")
#: A process that uses a smaller share of one core does nothing: a loop that waits uses 0.2 %.
_ACTIVE_SHARE = 0.01
#: The wall time of a process as a multiple of its limit. Twenty busy processes on each core delay
#: it so much.
_WALL_FACTOR = 20.0
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends for any reason (Linux)."""
    if not IS_LINUX:
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the line above
        os._exit(os.EX_SOFTWARE)


def clear_parent_death_signal() -> None:
    """Undo `die_with_parent`."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Become the parent of each descendant whose parent ends (Linux).

    https://man7.org/linux/man-pages/man2/pr_set_child_subreaper.2const.html
    """
    if IS_LINUX:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _has_proc() -> bool:
    """Return whether the system shows its processes as files: a container may have no `/proc`."""
    return IS_LINUX and _OWN_STATE.exists()


def list_children(pid: int | None = None) -> list[int]:
    """Return the children of a process or of this one (Linux)."""
    children: list[int] = []
    for thread in Path(f"/proc/{pid or os.getpid()}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the process ended
            children += map(int, thread.read_text(encoding="ascii").split())
    return children


def list_descendants(pid: int) -> list[int]:
    """Return the children of a process and their descendants."""
    if not _has_proc():
        return _list_family(pid, _read_processes())[1:]
    children = list_children(pid)
    return children + [each for child in children for each in list_descendants(child)]


def read_cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, its descendants and, on Linux, their ended children.

    It is the time of a clock if the system does not list its processes.
    """
    if not _has_proc():
        processes = _read_processes()
        family = _list_family(pid, processes) if processes else []
        return sum(processes[each][1] for each in family) if processes else time.monotonic()
    ticks = 0
    for current in (pid, *list_descendants(pid)):
        with contextlib.suppress(OSError):  # the process ended
            text = Path(f"/proc/{current}/stat").read_text(encoding="ascii", errors="replace")
            # The name of the program can contain spaces. Its own times, then those of children.
            ticks += sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _read_processes() -> dict[int, tuple[int, float]]:
    """Return the parent and the CPU seconds of each process by `ps`, which POSIX requires."""
    command = ("ps", "-A", "-o", "pid=,ppid=,time=")
    environment = {"PATH": "/bin:/usr/bin", "LC_ALL": "C"}
    try:
        output = subprocess.run(command, env=environment, capture_output=True, check=False).stdout
    except OSError:
        return {}
    processes = {}
    for pid, parent, text in map(str.split, output.decode().splitlines()):
        days, _, clock = text.rpartition("-")  # `[[days-]hours:]minutes:seconds`
        seconds = 0.0
        for part in clock.split(":"):
            seconds = 60 * seconds + float(part)
        processes[int(pid)] = (int(parent), 86_400 * int(days or 0) + seconds)
    return processes


def _list_family(pid: int, processes: Mapping[int, tuple[int, float]]) -> list[int]:
    """Return a process that runs, and its descendants."""
    family = [pid] if pid in processes else []
    for each in family:  # the loop also visits the children that it adds
        family += [child for child, (parent, _) in processes.items() if parent == each]
    return family


class CpuLimit:
    """A limit of the CPU time of a process and its descendants, from now on.

    It does not depend on the load of the machine. A process that waits ends after `period` seconds.
    """

    def __init__(self, pid: int, seconds: float, period: float | None = None) -> None:
        self._pid, self._seconds = pid, seconds
        self._period = seconds if period is None else period
        self._start = self._read_at = time.monotonic()
        self._before = read_cpu_seconds(pid)
        #: The wall time and the CPU time of the last activity, and the progress at that time.
        self._active: tuple[float, float, object] = (self._start, 0.0, None)
        self.used = 0.0
        """CPU time in seconds, until the last call of `find_excess`."""

    @property
    def interval(self) -> float:
        """The seconds between two readings of the CPU time."""
        return min(_CPU_INTERVAL, self._period / 10)

    def find_excess(self, progress: object = None) -> Literal["time", "silence"] | None:
        """Return how the process exceeds its limit; None if it does not.

        `progress`: A value that changes if the process makes progress.
        """
        now = time.monotonic()
        if now - self._read_at < self.interval:
            return None
        self._read_at = now
        wall = now - self._start
        cpu = read_cpu_seconds(self._pid) - self._before
        self.used = max(self.used, cpu)  # a child may end between two readings
        since, used, before = self._active
        if self.used - used >= _ACTIVE_SHARE * self._period or progress != before:
            self._active = (now, self.used, progress)
        elif now - since > self._period:
            return "silence"
        is_over = self.used > self._seconds or wall > _WALL_FACTOR * self._period
        return "time" if is_over else None


def hide_memory() -> None:
    """Forbid other processes of the user to open this process through `/proc` (Linux).

    A model could otherwise write to the descriptors and the memory of the processes that judge it.
    A process with the capability CAP_SYS_PTRACE still can.
    """
    _set_dumpable(0)


def show_memory() -> None:
    """Undo `hide_memory` in a fork, which the tracer of opened files must read."""
    _set_dumpable(1)


def _set_dumpable(value: int) -> None:
    if IS_LINUX:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, value, 0, 0, 0)


def prefer_for_oom_kill() -> None:
    """Let the kernel kill this process before its parent if memory runs out (Linux).

    https://man7.org/linux/man-pages/man5/proc_pid_oom_score_adj.5.html
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
