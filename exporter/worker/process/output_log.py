"""Redirection of the worker's output to the log of the current cell."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from pathlib import Path

_STREAMS = {"stdout": 1, "stderr": 2}


def redirect_output(path: Path) -> None:
    """Append all later output to `path`."""
    broken = flush_output()
    path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor in _STREAMS.values():
        os.dup2(log, descriptor)
    if log not in _STREAMS.values():  # if a model closed a stream, `open` reuses its descriptor
        os.close(log)
    for name in broken:
        setattr(sys, name, os.fdopen(_STREAMS[name], "w", buffering=1, closefd=False))
    faulthandler.enable(file=2, all_threads=True)
    dump_stack_at_time_limit(2)


def dump_stack_at_time_limit(log: int) -> None:
    """Write the stacks of all threads to a descriptor at SIGTERM, also if C code runs."""
    if sys.platform != "win32":
        faulthandler.register(signal.SIGTERM, file=log, all_threads=True, chain=True)


def flush_output() -> tuple[str, ...]:
    """Flush both streams.

    Returns:
        The names of the streams that a model closed or replaced with an unusable object.
    """
    broken = []
    for name in _STREAMS:
        try:
            getattr(sys, name).flush()
        except Exception:  # the stream may be closed, None or any object
            broken.append(name)
    return tuple(broken)
