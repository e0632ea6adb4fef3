"""Figures of a benchmark as rows of a table.

Output: `Figure`, `Section`, and the markdown of both.
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
    """With the seconds behind a ratio."""
    aim: str = ""
    """The aim, or ""."""
    met: bool | None = None
    """None if there is no aim."""

    @property
    def verdict(self) -> str:
        """Return `met`, `missed` or ""."""
        return "" if self.met is None else "met" if self.met else "**missed**"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One benchmark."""

    name: str
    about: str
    """The two sides and the number of runs."""
    figures: Sequence[Figure]

    def lines(self) -> Iterator[str]:
        """Return the markdown lines; the heading is the name."""
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
    """Return a figure with an upper limit."""
    aim = f"at most {_spelled(limit, unit)}"
    return Figure(what=what, measured=said, aim=aim, met=_rounded(value) <= limit)


def at_least(what: str, value: float, limit: float, said: str, unit: str = "") -> Figure:
    """Return a figure with a lower limit."""
    aim = f"at least {_spelled(limit, unit)}"
    return Figure(what=what, measured=said, aim=aim, met=_rounded(value) >= limit)


def _rounded(value: float) -> float:
    """Return a value as reports print it: an aim that is met to the rounding is met."""
    return round(value, 2 if value < 10 else 1)


def _spelled(limit: float, unit: str) -> str:
    return f"{limit:.0%}" if unit == "%" else f"{limit:g}{unit}"


def machine() -> str:
    """Describe the machine and the tools in one line."""
    cores = len(os.sched_getaffinity(0))
    tools = ", ".join(f"{name} {version(name)}" for name in _TOOLS)
    busy = os.getloadavg()[0]
    return (
        f"{datetime.now(UTC).date()}, {cores} cores ({platform.machine()}), load {busy:.1f}, "
        f"Python {platform.python_version()}, {tools}"
    )
