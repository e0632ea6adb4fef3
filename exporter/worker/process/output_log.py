"""Where the worker's output goes: the log of the cell at work, by file descriptor.

In: a path. Out: descriptors 1 and 2 point there, for Python, C and C++ alike, and a segfault
leaves its Python frames there.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path

_STREAMS = {"stdout": 1, "stderr": 2}


def redirect_output(path: Path) -> None:
    """Sends everything that is printed from here on to the end of `path`."""
    broken = flush_output()
    path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor in _STREAMS.values():
        os.dup2(log, descriptor)
    if log not in _STREAMS.values():  # a model that closed one had its number given out again
        os.close(log)
    for name in broken:
        setattr(sys, name, os.fdopen(_STREAMS[name], "w", buffering=1, closefd=False))
    faulthandler.enable(file=2, all_threads=True)


def flush_output() -> tuple[str, ...]:
    """Writes all that was printed.

    Returns:
        The names of the streams that a model closed, or put something else in the place of.
    """
    broken = []
    for name in _STREAMS:
        try:
            getattr(sys, name).flush()
        except Exception:  # of a closed file, of None, of whatever stands there
            broken.append(name)
    return tuple(broken)
