"""The measured speed and memory of a file, for cells whose entry has `measure`.

Absolute values depend on the machine and its load. So each value has a ratio that was measured in
the same run, and the gate compares only ratios.
"""

from __future__ import annotations

from exporter.core.frozen_model import FrozenModel


class Latency(FrozenModel):
    """The time of one run on the declared inputs, with one thread."""

    median: float
    """Seconds."""
    p95: float
    """Seconds: 95 % of the runs were at least as fast."""
    ratio: float
    """The median divided by PyTorch's median in the same run."""
    turns: int
    """The number of runs."""


class LoadTime(FrozenModel):
    """The time until a session exists, in a process of its own."""

    seconds: float
    """The shortest of several loads."""
    ratio: float
    """Divided by the load time of a file with one node, in the same process."""


class PeakMemory(FrozenModel):
    """The growth of memory by a session and its first run, in a process of its own."""

    bytes: int
    """The largest resident memory, minus the memory before the session."""
    ratio: float
    """Divided by the size of the file and its external data."""


class Measurements(FrozenModel):
    """The requested measurements of a cell; None if one was not requested."""

    latency: Latency | None = None
    load: LoadTime | None = None
    memory: PeakMemory | None = None
