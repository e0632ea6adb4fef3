"""The operating system: no other module examines which one it is.

Tests set the variable `SWITCH`. Everything then runs as on a system without the parts of Linux:
forks, seccomp, Landlock, `/proc`, prctl and limits of memory.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

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
    """Return the number of cores that this process may use."""
    if IS_LINUX:
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
