"""The relation of a process to its parent, and its priority if memory runs out."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends for any reason (Linux)."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the line above
        os._exit(os.EX_SOFTWARE)


def clear_parent_death_signal() -> None:
    """Undo `die_with_parent`."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)


def prefer_for_oom_kill() -> None:
    """Let the kernel kill this process before its parent if memory runs out (Linux).

    https://man7.org/linux/man-pages/man5/proc_pid_oom_score_adj.5.html
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
