"""The load time of a file and the memory of its session, measured in a process without PyTorch.

The figures are valid if nothing else runs in the process: it is a session process of the worker's
environment, or the process of a device's environment.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, NamedTuple

#: The number of loads: between these limits the time decides.
_MIN_LOADS, _MAX_LOADS = 3, 30
_SECONDS = 0.5
_STATUS, _CLEAR_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class LoadFigures(NamedTuple):
    """The measured load."""

    seconds: float
    """The shortest load: from the call until the session exists."""
    small_seconds: float
    """The same for a file with one node."""
    bytes: int
    """The growth of memory by the session and its first run."""


def measure_load(
    load_small: Callable[[], Any], load: Callable[[], Any], run: Callable[[Any], Any]
) -> LoadFigures:
    """Load a small file and the file many times, and run the file once.

    `load_small`: Creates the session of a file with one node.
    """
    small_seconds = _time_loads(load_small)  # also imports and starts the runtime
    with suppress(OSError):  # not Linux, or a container without this file
        _CLEAR_PEAK.write_text("5", encoding="ascii")  # the peak becomes the current memory
    before = _read_peak()
    session = load()
    run(session)
    growth = max(0, _read_peak() - before)
    del session
    return LoadFigures(_time_loads(load), small_seconds, growth)


def _time_loads(load: Callable[[], Any]) -> float:
    """Return the shortest time of many loads: other processes only make a load longer."""
    times: list[float] = []
    while len(times) < _MIN_LOADS or (len(times) < _MAX_LOADS and sum(times) < _SECONDS):
        start = time.perf_counter()
        load()
        times.append(time.perf_counter() - start)
    return min(times)


def _read_peak() -> int:
    """Return the largest resident memory of this process in bytes."""
    try:
        lines = _STATUS.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource  # not on Windows

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak << 10
