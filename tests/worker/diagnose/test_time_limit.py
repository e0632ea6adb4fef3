"""Time limits nest, and leave the outer one as it was."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from exporter.worker.diagnose.time_limit import TimeLimitExceeded, limit_time


def spin() -> None:
    while True:
        pass


def stopped_inside() -> None:
    with pytest.raises(TimeLimitExceeded), limit_time(0.05):
        spin()
    spin()


def test_python_at_work_is_stopped() -> None:
    start = time.monotonic()
    with pytest.raises(TimeLimitExceeded), limit_time(0.1):
        spin()
    assert time.monotonic() - start < 2


def test_what_is_done_in_time_is_left_alone() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with limit_time(10):
        done = True
    assert done
    assert signal.getsignal(signal.SIGALRM) is before


def test_the_limit_that_ends_first_counts() -> None:
    with pytest.raises(TimeLimitExceeded), limit_time(0.1), limit_time(10):
        spin()


def test_the_outer_limit_goes_on_after_the_inner_one() -> None:
    start = time.monotonic()
    with pytest.raises(TimeLimitExceeded), limit_time(0.3):
        stopped_inside()
    assert 0.25 < time.monotonic() - start < 3


def test_outside_the_main_thread_there_is_none() -> None:
    found: list[bool] = []

    def work() -> None:
        with limit_time(0.01):
            time.sleep(0.05)
            found.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [True]
