"""What there is to find out with, and how long that may take.

In: nothing. Out: `ExportContext`, and `limit_time`, which ends whatever is at work when its time is up.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeLimitExceeded(BaseException):
    """No `Exception`, so that no runtime takes it for a failure of its own."""


@contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raises `TimeLimitExceeded` inside once the time is over, as soon as Python gets to it.

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
    raise TimeLimitExceeded
