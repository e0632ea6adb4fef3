"""What there is to find out with, and how long that may take.

In: nothing. Out: `Case`, and `time_limit`, which ends whatever is at work when its time is up.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from exporter.job import OpsetJob
from exporter.manifest import ModelSpec
from exporter.record import Route
from exporter.worker.call import Tensors
from exporter.worker.custom_ops import NO_CUSTOM_OPS, CustomOps
from exporter.worker.source import Model
from exporter.worker.torch_internals import Decompositions


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model at one opset, as the worker has it at hand."""

    model: Model
    inputs: Tensors
    """The declared ones."""
    spec: ModelSpec
    job: OpsetJob
    root: Path
    """The project's root: lines of the model are told relative to it."""
    program: Any | None = None
    """The captured `torch.export.ExportedProgram`; None under TorchScript, or without one."""
    kept: Decompositions = field(default_factory=Decompositions)
    """What the program was decomposed to before."""
    custom: CustomOps = NO_CUSTOM_OPS

    @property
    def opset(self) -> int:
        """The opset of the file."""
        return self.job.opset

    @property
    def route(self) -> Route:
        """The exporter in use."""
        return self.job.route


class TimeIsUp(BaseException):
    """No `Exception`, so that no runtime takes it for a failure of its own."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises `TimeIsUp` inside once the time is over, as soon as Python gets to it.

    Limits nest: the one that ends first counts. Outside the main thread there are no signals, and
    no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    start = time.monotonic()
    before = signal.signal(signal.SIGALRM, _ring)
    outer, _ = signal.getitimer(signal.ITIMER_REAL)
    signal.setitimer(signal.ITIMER_REAL, min(seconds, outer) if outer else seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if outer:
            left = outer - (time.monotonic() - start)
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3))


def _ring(_number: int, _frame: FrameType | None) -> None:
    raise TimeIsUp
