"""Split off; to be described."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

from exporter.core.errors import ExitCode

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Linux: the kernel ends this process when its parent ends, however that ends."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(int(ExitCode.BUG))


def clear_parent_death_signal() -> None:
    """Takes `die_with_parent` back."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)


def prefer_for_oom_kill() -> None:
    """Linux: where memory runs out the kernel ends this process, and not the one that started it.

    https://man7.org/linux/man-pages/man5/proc_pid_oom_score_adj.5.html
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
