"""A time limit for the diagnosis, based on a timer signal."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeLimitExceeded(BaseException):
    """The time is over; not an `Exception`, so a runtime does not handle it as its own error."""


@contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raise `TimeLimitExceeded` inside the context when the time is over.

    If limits are nested, the earliest one counts. Outside the main thread there are no signals and
    so no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    start = time.monotonic()
    before = signal.signal(signal.SIGALRM, _raise_exceeded)
    outer, _ = signal.getitimer(signal.ITIMER_REAL)
    signal.setitimer(signal.ITIMER_REAL, min(seconds, outer) if outer else seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if outer:
            remaining = outer - (time.monotonic() - start)
            signal.setitimer(signal.ITIMER_REAL, max(remaining, 1e-3))


def _raise_exceeded(_number: int, _frame: FrameType | None) -> None:
    raise TimeLimitExceeded
