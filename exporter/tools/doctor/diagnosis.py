"""What an examination finds.

In: nothing. Out: `GateFinding`, `Examination`.
"""

from __future__ import annotations

from enum import StrEnum

from exporter.core.frozen_model import FrozenModel, Items


class Level(StrEnum):
    """What to do about it."""

    OK = "ok"
    NOTE = "note"
    """It works, and something is slower, missing or other than it could be."""
    PROBLEM = "problem"
    """An export does not work, or what lies here cannot be relied on."""


class Diagnosis(FrozenModel):
    """One line."""

    level: Level
    about: str
    """`torch`, `device cuda`, `store`."""
    said: str


class Examination(FrozenModel):
    """All of them."""

    findings: Items[Diagnosis]

    @property
    def is_sound(self) -> bool:
        """Whether there is no problem."""
        return all(finding.level is not Level.PROBLEM for finding in self.findings)


def ok(about: str, said: str) -> Diagnosis:
    """Nothing to do."""
    return Diagnosis(level=Level.OK, about=about, said=said)


def note(about: str, said: str) -> Diagnosis:
    """Something that a person may want to know."""
    return Diagnosis(level=Level.NOTE, about=about, said=said)


def problem(about: str, said: str) -> Diagnosis:
    """Something that somebody must see to."""
    return Diagnosis(level=Level.PROBLEM, about=about, said=said)
