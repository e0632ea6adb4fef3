"""One mutant in a process of its own: a broken file may crash a runtime or turn a loop for ever.

In: a function without arguments, and the seconds that it may take. Out: what it returned, or how
it ended. The process is forked, so that nothing is imported again; no session is opened before.
"""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Generic, TypeVar

from exporter.core.sanitize import one_line

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Returned(Generic[T]):
    """The function came to its end."""

    value: T


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """The function did not come to its end: `crash`, `timeout`, `memory` or `raised`."""

    how: str
    message: str


def in_process(function: Callable[[], T], seconds: float, memory: int) -> Returned[T] | ChildEnd:
    """Calls `function` in a child process.

    Args:
        function: What to do; its result is sent back.
        seconds: Wall time, after which the child is killed.
        memory: Bytes of address space that the child may use beyond what it has.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_call, args=(function, sender, memory))
    child.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            return ChildEnd("timeout", f"not done after {seconds:.0f} seconds")
        answer: Returned[T] | ChildEnd = receiver.recv()
    except EOFError:
        child.join()
        return ChildEnd("crash", f"the process ended with {child.exitcode}")
    finally:
        if child.is_alive():
            child.kill()
        child.join()
        receiver.close()
    return answer


def _call(function: Callable[[], T], sender: Connection, memory: int) -> None:
    _limit(memory)
    answer: Returned[T] | ChildEnd
    try:
        answer = Returned(function())
    except MemoryError:
        answer = ChildEnd("memory", f"more than {memory >> 30} GiB")
    except Exception as error:
        answer = ChildEnd("raised", one_line(f"{type(error).__name__}: {error}"))
    sender.send(answer)
    sender.close()


def _limit(memory: int) -> None:
    """A mutated size may ask for more memory than there is."""
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    used *= resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
