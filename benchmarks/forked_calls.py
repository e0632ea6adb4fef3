"""Functions in forked child processes: a crash, a hang or a leak does not end the caller.

One child calls the function for one argument after the other, because a fork is expensive. If it
dies, the next child continues after the argument at which it died.
"""

from __future__ import annotations

import multiprocessing
import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")
A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """The resources for one call."""

    seconds: float
    """Wall time."""
    cpu_seconds: float | None = None
    """Computing time, which does not depend on the load of the machine."""
    memory: int | None = None
    """Bytes of address space in addition to the used ones."""


@dataclass(frozen=True, slots=True)
class Returned(Generic[T]):
    """The function returned a value."""

    value: T


@dataclass(frozen=True, slots=True)
class CallFailure:
    """The function did not return."""

    kind: str
    """`crash`, `timeout`, `memory` or `raised`."""
    message: str


def call_in_fork(function: Callable[[], T], limits: CallLimits) -> Returned[T] | CallFailure:
    """Call `function` in a child process."""
    return call_each_in_forks(lambda _: function(), [None], limits)[0]


def call_each_in_forks(
    function: Callable[[A], T], arguments: Sequence[A], limits: CallLimits
) -> list[Returned[T] | CallFailure]:
    """Call `function` for each argument in child processes, one call at a time."""
    results: list[Returned[T] | CallFailure] = []
    while len(results) < len(arguments):
        results += _run_child(function, arguments[len(results) :], limits)
    return results


def _run_child(
    function: Callable[[A], T], arguments: Sequence[A], limits: CallLimits
) -> Iterator[Returned[T] | CallFailure]:
    """Yield the results of one child; the last one may be the reason of its death."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_serve, args=(function, arguments, limits, sender))
    child.start()
    sender.close()
    try:
        for _ in arguments:
            if not receiver.poll(limits.seconds):
                yield CallFailure("timeout", f"not finished after {limits.seconds:.0f} seconds")
                return
            yield receiver.recv()
    except EOFError:
        child.join()
        yield CallFailure("crash", f"the process ended with {child.exitcode}")
    finally:
        child.kill()
        child.join()
        receiver.close()


def _serve(
    function: Callable[[A], T], arguments: Sequence[A], limits: CallLimits, sender: Connection
) -> None:
    # The default action of SIGPROF ends the process.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    if limits.memory is not None:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + limits.memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for argument in arguments:
        signal.setitimer(signal.ITIMER_PROF, limits.cpu_seconds or 0)
        result: Returned[T] | CallFailure
        try:
            result = Returned(function(argument))
        except MemoryError:
            result = CallFailure("memory", f"more than {(limits.memory or 0) >> 30} GiB")
        except Exception as error:
            result = CallFailure("raised", f"{type(error).__name__}: {error}")
        sender.send(result)
    sender.close()
