"""A time limit for the diagnosis, based on a timer signal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from exporter.processes.lifetime import CpuLimit


class TimeLimitExceeded(BaseException):
    """The time is over; not an `Exception`, so a runtime does not handle it as its own error."""


#: The active limits, from the outer to the inner one.
_limits: list[CpuLimit] = []


@contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raise `TimeLimitExceeded` inside the context when the time is over.

    The seconds are CPU time of this process and its descendants, so that a record does not depend
    on the load of the machine. If limits are nested, the earliest one counts. Outside the main
    thread there are no signals and so no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _limits.append(CpuLimit(os.getpid(), seconds))
    interval = min(limit.interval for limit in _limits)
    before = signal.signal(signal.SIGALRM, _check_limits)
    outer = signal.setitimer(signal.ITIMER_REAL, interval, interval)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *outer)
        _limits.pop()


def _check_limits(_number: int, _frame: FrameType | None) -> None:
    if any(limit.find_excess() for limit in _limits):
        raise TimeLimitExceeded
