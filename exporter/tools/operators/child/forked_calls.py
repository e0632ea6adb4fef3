"""Questions answered in child processes, so that one that crashes costs its own answer alone.

In: names, and a function that answers one. Out: answers by name; a name without one crashed,
raised or took too long. A child answers one name after the other, and the next child goes on
behind the name at which it died.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

#: What one answer may take: seconds of work, the same however busy the machine is, and by the clock
#: for one that waits for ever.
_WORK, _CLOCK = 20, 600


def each_in_a_child(names: Sequence[str], ask: Callable[[str], Any]) -> dict[str, Any]:
    """Asks for every name; answers must be JSON."""
    answers: dict[str, Any] = {}
    waiting = list(names)
    while waiting:
        heard = 0
        for name, answer in _one_child(waiting, ask):
            answers[name] = answer
            heard += 1
        # The one behind the last that was heard of is the one that took the child down.
        waiting = waiting[heard + 1 :]
    return answers


def _one_child(names: Sequence[str], ask: Callable[[str], Any]) -> Iterator[tuple[str, Any]]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(names, ask, writing)
    os.close(writing)
    try:
        with open(reading, encoding="utf-8") as lines:  # noqa: PTH123 - a descriptor is no path
            for line in lines:
                if line.endswith("\n"):
                    name, answer = json.loads(line)
                    yield name, answer
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _answer(names: Sequence[str], ask: Callable[[str], Any], writing: int) -> None:
    """The child's whole life: it never returns."""
    try:
        # By default either ends the process.
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for name in names:
            signal.setitimer(signal.ITIMER_PROF, _WORK)
            signal.setitimer(signal.ITIMER_REAL, _CLOCK)
            line = json.dumps([name, ask(name)]) + "\n"
            os.write(writing, line.encode())
    finally:
        os.kill(os.getpid(), signal.SIGKILL)
