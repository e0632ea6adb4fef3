"""Where the worker's output goes: the log of the cell at work, by file descriptor.

In: a path. Out: descriptors 1 and 2 point there, for Python, C and C++ alike, and a segfault
leaves its Python frames there.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path


def log_to(path: Path) -> None:
    """Sends everything that is printed from here on to the end of `path`."""
    sys.stdout.flush()
    sys.stderr.flush()
    path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    faulthandler.enable(file=2, all_threads=True)
