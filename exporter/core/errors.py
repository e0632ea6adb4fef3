"""What can go wrong before or around a model, and the exit code each kind has.

In: nothing. Out: `ExitCode`, `Location`, `Problem` and `ExporterError`.

A failing *model* is never an exception here: it is a record with a status. These classes are for
what stops the tool itself: a manifest that cannot be read, a selection that matches nothing, a
machine that lacks a package, a committed file that is damaged.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the command line."""

    OK = 0
    RED = 1  # red cells, or findings of the gate
    MANIFEST = 2  # a manifest, a setting or a selection is wrong
    NOTHING_SELECTED = 3
    ENVIRONMENT = 4  # a package, a device or a permission is missing
    UNREADABLE = 5  # a committed or stored file cannot be read
    BUG = 70  # EX_SOFTWARE of sysexits.h: our own fault, the only one with a traceback


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A place in a text file; `line` counts from 1 and is None where the whole file is meant."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong: where, at which key (`models.alexnet.inputs[0].shape[1]`), what."""

    message: str
    location: Location | None = None
    key: str = ""

    def __str__(self) -> str:
        parts = [str(self.location) if self.location else "", self.key, self.message]
        return ": ".join(part for part in parts if part)


class ExporterError(Exception):
    """Stops the tool with `exit_code` and one message per problem; never a traceback."""

    def __init__(self, exit_code: ExitCode, problems: Iterable[Problem] | str) -> None:
        self.exit_code = exit_code
        self.problems: tuple[Problem, ...] = (
            (Problem(message=problems),) if isinstance(problems, str) else tuple(problems)
        )
        super().__init__("\n".join(str(problem) for problem in self.problems))


def suggest_nearest(word: str, known: Iterable[str]) -> str:
    """A suggestion to end a message with: `; did you mean 'inputs'?`, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""
