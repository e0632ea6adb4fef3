"""Decide by the kernel's own files whether the tracer of opened files has to work here.

If the tests asked the program, a broken tracer would skip its own tests.
"""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

_ACTIONS = Path("/proc/sys/kernel/seccomp/actions_avail")
_STATUS = Path("/proc/self/status")


def has_notifications() -> bool:
    """Return True if the kernel has notifications and no filter of a container is active."""
    if not (_ACTIONS.exists() and platform.machine() in ("x86_64", "aarch64")):
        return False
    has_action = "user_notif" in _ACTIONS.read_text(encoding="ascii").split()
    return has_action and "Seccomp:\t0\n" in _STATUS.read_text(encoding="utf-8")


needs_tracer = pytest.mark.skipif(
    not has_notifications(), reason="no seccomp notifications, or another filter is active"
)
