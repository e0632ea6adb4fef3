"""What a benchmark found, as rows of a table.

In: nothing. Out: `Figure`, `Section`, and the markdown of both.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

_TOOLS = ("torch", "onnx", "onnxscript", "onnxruntime")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row."""

    what: str
    measured: str
    """With the seconds that a ratio was made of."""
    aim: str = ""
    """Empty where nothing is aimed at."""
    met: bool | None = None
    """None where nothing is aimed at."""

    @property
    def verdict(self) -> str:
        """`met`, `missed`, or nothing."""
        return "" if self.met is None else "met" if self.met else "**missed**"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One benchmark."""

    name: str
    about: str
    """What was measured against what, and how often."""
    figures: Sequence[Figure]

    def lines(self) -> Iterator[str]:
        """Its markdown; the heading is its name."""
        yield f"## {self.name}"
        yield ""
        yield self.about
        yield ""
        yield "| | aim | measured | |"
        yield "|---|---|---|---|"
        for figure in self.figures:
            yield f"| {figure.what} | {figure.aim} | {figure.measured} | {figure.verdict} |"
        yield ""
        yield f"{machine()}."
        yield ""


def at_most(what: str, value: float, limit: float, said: str, unit: str = "") -> Figure:
    """A figure that has to be small."""
    aim = f"at most {_spelled(limit, unit)}"
    return Figure(what=what, measured=said, aim=aim, met=value <= limit)


def at_least(what: str, value: float, limit: float, said: str, unit: str = "") -> Figure:
    """A figure that has to be large."""
    aim = f"at least {_spelled(limit, unit)}"
    return Figure(what=what, measured=said, aim=aim, met=value >= limit)


def _spelled(limit: float, unit: str) -> str:
    return f"{limit:.0%}" if unit == "%" else f"{limit:g}{unit}"


def machine() -> str:
    """Where and with what it was measured, in a line."""
    cores = len(os.sched_getaffinity(0))
    tools = ", ".join(f"{name} {version(name)}" for name in _TOOLS)
    busy = os.getloadavg()[0]
    return (
        f"{datetime.now(UTC).date()}, {cores} cores ({platform.machine()}), load {busy:.1f}, "
        f"Python {platform.python_version()}, {tools}"
    )
