"""A question that kills its process costs its own answer alone."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from exporter.tools.operators.child import forked_calls as children
from exporter.tools.operators.child.forked_calls import each_in_a_child


def ask(name: str) -> Any:
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
    return [name, True]


@pytest.mark.parametrize("bad", ["crash", "exit", "raise", "hang", "work"])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_the_others_are_answered(bad: str, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_WORK", 0.5)
    monkeypatch.setattr(children, "_CLOCK", 60 if bad == "work" else 2)
    names = ["a", "b", "c"]
    names.insert(place, bad)
    assert each_in_a_child(names, ask) == {name: [name, True] for name in "abc"}


def test_several_in_a_row() -> None:
    assert each_in_a_child(["crash", "raise", "a", "exit"], ask) == {"a": ["a", True]}
    assert each_in_a_child([], ask) == {}
