"""The operating system: no other module examines which one it is.

Tests set the variable `SWITCH`. Everything then runs as on a system without the parts of Linux:
forks, seccomp, Landlock, `/proc`, prctl and limits of memory.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

from exporter.core.control_group import GroupLimit, find_core_limit, find_memory_limit

SWITCH = "EXPORTER_WITHOUT_LINUX"
#: Whether the parts of Linux can be used.
IS_LINUX = sys.platform == "linux" and SWITCH not in os.environ
IS_WINDOWS = sys.platform == "win32"
_IS_MAC = sys.platform == "darwin"
#: A locale that each installation has; macOS has no `C.UTF-8`.
UTF8_LOCALE = "en_US.UTF-8" if _IS_MAC else "C.UTF-8"
#: The variables of processes with a GPU of NVIDIA.
NVIDIA_VARIABLES = {"NVIDIA_TF32_OVERRIDE": "0"}
#: F_GETPATH of `fcntl` on macOS, and the bytes of its longest path.
_GET_PATH, _PATH_LENGTH = 50, 1024


def describe_platform() -> str:
    """Return the system and the processor: `Linux x86_64`."""
    import platform

    return f"{platform.system()} {platform.machine()}"


def count_cores() -> int:
    """Return the number of cores that this process may use; 2 if its time is that of 1.5 cores."""
    if not IS_LINUX:
        return os.cpu_count() or 1
    available = len(os.sched_getaffinity(0))
    limit = find_core_limit()
    return available if limit is None else max(1, min(available, math.ceil(limit.value)))


def measure_memory() -> int:
    """Return the bytes of memory that this process and its children may use."""
    physical: int = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = find_memory_limit() if IS_LINUX else None
    return physical if limit is None else min(physical, int(limit.value))


def list_limits() -> list[GroupLimit]:
    """Return the limits of cores and memory that are smaller than those of the machine."""
    if not IS_LINUX:
        return []
    cores, memory = find_core_limit(), find_memory_limit()
    limits = [cores] if cores and cores.value < len(os.sched_getaffinity(0)) else []
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return limits + ([memory] if memory and memory.value < physical else [])


def find_open_path(descriptor: int) -> str:
    """Return the path of an open file or folder, or "" if the system does not show it.

    The switch does not change it, because macOS has the same.
    """
    try:
        if not _IS_MAC:
            return str(Path(f"/proc/self/fd/{descriptor}").readlink())
        import fcntl  # not on Windows

        path = fcntl.fcntl(descriptor, _GET_PATH, bytes(_PATH_LENGTH))
        return os.fsdecode(path.rstrip(b"\0"))
    except OSError:
        return ""
