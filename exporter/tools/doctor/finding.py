"""What an examination finds.

In: nothing. Out: `Finding`, `Examination`.
"""

from __future__ import annotations

from enum import StrEnum

from exporter.core.frozen_model import Items, Value


class Level(StrEnum):
    """What to do about it."""

    OK = "ok"
    NOTE = "note"
    """It works, and something is slower, missing or other than it could be."""
    PROBLEM = "problem"
    """An export does not work, or what lies here cannot be relied on."""


class Finding(Value):
    """One line."""

    level: Level
    about: str
    """`torch`, `device cuda`, `store`."""
    said: str


class Examination(Value):
    """All of them."""

    findings: Items[Finding]

    @property
    def is_sound(self) -> bool:
        """Whether there is no problem."""
        return all(finding.level is not Level.PROBLEM for finding in self.findings)


def ok(about: str, said: str) -> Finding:
    """Nothing to do."""
    return Finding(level=Level.OK, about=about, said=said)


def note(about: str, said: str) -> Finding:
    """Something that a person may want to know."""
    return Finding(level=Level.NOTE, about=about, said=said)


def problem(about: str, said: str) -> Finding:
    """Something that somebody must see to."""
    return Finding(level=Level.PROBLEM, about=about, said=said)
