"""Time limits can be nested, and the outer one continues."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from exporter.worker.diagnose.replay import TimeLimitExceeded, limit_time


def spin() -> None:
    while True:
        pass


def stop_inside() -> None:
    with pytest.raises(TimeLimitExceeded), limit_time(0.05):
        spin()
    spin()


def test_running_python_code_is_stopped() -> None:
    start = time.monotonic()
    with pytest.raises(TimeLimitExceeded), limit_time(0.1):
        spin()
    assert time.monotonic() - start < 2


def test_code_within_the_limit_is_not_stopped() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with limit_time(10):
        done = True
    assert done
    assert signal.getsignal(signal.SIGALRM) is before


def test_earliest_limit_counts() -> None:
    with pytest.raises(TimeLimitExceeded), limit_time(0.1), limit_time(10):
        spin()


def test_outer_limit_continues_after_the_inner_one() -> None:
    start = time.monotonic()
    with pytest.raises(TimeLimitExceeded), limit_time(0.3):
        stop_inside()
    assert 0.25 < time.monotonic() - start < 3


def test_other_threads_have_no_limit() -> None:
    result: list[bool] = []

    def work() -> None:
        with limit_time(0.01):
            time.sleep(0.05)
            result.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert result == [True]


def test_a_descendant_counts_and_a_loaded_machine_does_not() -> None:
    busy = [sys.executable, "-c", "while True: pass"]
    with pytest.raises(TimeLimitExceeded), limit_time(0.5):
        subprocess.run(busy, check=False)
    end = time.monotonic() + 1.0
    with limit_time(0.5):
        while time.monotonic() < end:
            time.sleep(0.02)
            sum(range(20_000))  # some CPU time, as a process that waits for a core
