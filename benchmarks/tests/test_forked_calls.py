"""A call that ends its process returns a failure; all other calls return their values."""

from __future__ import annotations

import os
import signal
import time

import pytest

from benchmarks.forked_calls import (
    CallFailure,
    CallLimits,
    Returned,
    call_each_in_forks,
    call_in_fork,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
GENEROUS = CallLimits(seconds=60)


def call(name: str) -> str:
    match name:
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            os._exit(0)
        case "raise":
            raise ValueError(name)
        case "hang":
            time.sleep(60)
        case "work":
            while True:
                pass
        case "memory":
            return str(len(bytearray(64 << 30)))
        case "unpicklable":
            return lambda: name  # type: ignore[return-value]
    return name.upper()


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        ("crash", "crash"),
        ("exit", "crash"),
        ("unpicklable", "crash"),
        ("raise", "raised"),
        ("hang", "timeout"),
        ("work", "crash"),
    ],
)
@pytest.mark.parametrize("index", [0, 1, 3])
def test_the_other_calls_return(bad: str, kind: str, index: int) -> None:
    limits = CallLimits(seconds=60 if bad == "work" else 2, cpu_seconds=0.5)
    names = ["a", "b", "c"]
    names.insert(index, bad)
    results = call_each_in_forks(call, names, limits)
    failure = results.pop(index)
    assert isinstance(failure, CallFailure)
    assert failure.kind == kind
    assert results == [Returned("A"), Returned("B"), Returned("C")]


def test_several_failures_in_a_row() -> None:
    results = call_each_in_forks(call, ["crash", "raise", "a", "exit"], GENEROUS)
    assert [isinstance(item, CallFailure) for item in results] == [True, True, False, True]
    assert results[1] == CallFailure("raised", "ValueError: raise")
    assert call_each_in_forks(call, [], GENEROUS) == []


def test_one_call_returns_its_value() -> None:
    assert call_in_fork(lambda: 7, GENEROUS) == Returned(7)


def test_memory_is_limited() -> None:
    limits = CallLimits(seconds=60, memory=4 << 30)
    failure = call_in_fork(lambda: call("memory"), limits)
    assert failure == CallFailure("memory", "more than 4 GiB")
