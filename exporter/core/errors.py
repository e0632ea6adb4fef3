"""The errors that stop the tool, and their exit codes.

A failing *model* is not an exception here, but a record with a status. These classes are for
errors around a model: an invalid manifest, an empty selection, a missing package, a damaged file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

#: The number of names that fit one line of a message.
_FEW_NAMES = 5


class ExitCode(IntEnum):
    """Exit codes of the command line."""

    OK = 0
    RED = 1  # red cells, or findings of the gate
    MANIFEST = 2  # a manifest, a setting or the command line is wrong
    NOTHING_SELECTED = 3
    ENVIRONMENT = 4  # a package, a device or a permission is missing
    UNREADABLE = 5  # a committed or stored file cannot be read
    BUG = 70  # EX_SOFTWARE of sysexits.h: an error of this tool, with a traceback


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A line of a text file, counted from 1; None for the full file."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem with its location and its key, `models.alexnet.inputs[0].shape[1]`."""

    message: str
    location: Location | None = None
    key: str = ""
    excerpt: str = ""
    """Lines of the file with a mark, for a terminal."""

    def __str__(self) -> str:
        parts = [str(self.location) if self.location else "", self.key, self.message]
        return ": ".join(part for part in parts if part)


#: Problems of one kind that a command prints; 3,000 entries can have the same one.
_SHOWN = 20
#: Names, numbers and hints of a problem, which differ between problems of one kind.
_DETAILS = re.compile(r"""; did you mean .*|"(?:[^"\\]|\\.)*"|'[^']*'|\d+""", re.DOTALL)


def shorten_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the first problems of each kind, and one with the number of its others."""
    kinds: dict[str, list[Problem]] = {}
    shown = []
    for problem in problems:
        kind = kinds.setdefault(_DETAILS.sub("", problem.message), [])
        kind.append(problem)
        if len(kind) <= _SHOWN:
            shown.append(problem)
    for kind in kinds.values():
        if len(kind) > _SHOWN:
            message = f"{len(kind) - _SHOWN} more problems like the last one"
            shown.insert(shown.index(kind[_SHOWN - 1]) + 1, Problem(message=message))
    return tuple(shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSummary:
    """The output and the exit code of an export."""

    lines: tuple[tuple[str, str | None], ...]
    """Each line with its color."""
    code: int
    next_step: str = ""
    """The command that follows; empty if the export wrote no tables."""


class ExporterError(Exception):
    """An error that stops the tool with `exit_code` and one message per problem."""

    def __init__(self, exit_code: ExitCode, problems: Iterable[Problem] | str) -> None:
        self.exit_code = exit_code
        self.problems: tuple[Problem, ...] = (
            (Problem(message=problems),) if isinstance(problems, str) else tuple(problems)
        )
        super().__init__("\n".join(str(problem) for problem in self.problems))


#: The note of an interrupt that ended an export with results.
RESULTS_NOTE = "finished results are kept"


class StoppedByFailure(KeyboardInterrupt):
    """The export was interrupted because a cell is red; the text is the cell."""


#: `difflib` takes 0.1 ms for each name, and each of 3,000 entries can have an unknown one.
_MANY_NAMES = 100


def suggest_nearest(word: str, candidates: Iterable[str]) -> str:
    """Return the end of a message, `; did you mean 'inputs'?`, or "" if no word is similar.

    Of many candidates, only those that differ in one letter or go on are similar.
    """
    names = tuple(candidates)
    if len(names) > _MANY_NAMES:
        known = _index_by_parts(names)
        close = [known[part] for part in _list_parts(word) if part in known]
        close = close or [name for name in names if word and name.startswith(word)]
    else:
        close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


@lru_cache(maxsize=4)
def _index_by_parts(names: tuple[str, ...]) -> dict[str, str]:
    parts = {part: name for name in reversed(names) for part in _list_parts(name)}
    return parts | {name: name for name in names}


def _list_parts(name: str) -> list[str]:
    """Return a name, and what is left of it without one of its letters."""
    return [name, *(name[:index] + name[index + 1 :] for index in range(len(name)))]


def suggest_name(word: str, candidates: Iterable[str]) -> str:
    """Return the end of a message with the nearest name, or with all of them if they are few."""
    names = sorted({*candidates})
    nearest = suggest_nearest(word, names)
    if nearest or not 0 < len(names) <= _FEW_NAMES:
        return nearest
    return f"; use {' or '.join(map(repr, names))}"
