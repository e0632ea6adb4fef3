"""The appearance of each status, for all pages and for the terminal."""

from __future__ import annotations

from dataclasses import dataclass

from exporter.records.record import Record, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A symbol with its word, its meaning, and its letter and color in a picture."""

    symbol: str
    word: str
    meaning: str
    letter: str
    fill: str
    """A color with enough contrast to white letters."""


#: A promised cell without a record; it never counts as green.
NOT_RUN = Mark(
    symbol="⬜",
    word="not run",
    meaning="promised, but without a result",
    letter=".",
    fill="#8a939e",
)

#: Symbol, letter, color and meaning.
_LOOKS = {
    Status.PASS: ("✅", "P", "#2a7d3c", "all promises are proved on the file"),
    Status.XFAIL: ("🟡", "x", "#8f6a00", "fails as the manifest foresees"),
    Status.FAIL: ("❌", "F", "#c0392b", "a check failed"),
    Status.ERROR: ("🟥", "E", "#a5283a", "a stage raised an error"),
    Status.CRASH: ("💥", "C", "#8e2a6b", "the worker died"),
    Status.TIMEOUT: ("⏰", "T", "#9a4a12", "the job exceeded its time limit"),
    Status.KILLED: ("💀", "K", "#5b2a86", "killed from outside, usually for its memory"),
    Status.INCONCLUSIVE: ("❓", "?", "#6a4fb0", "the comparison could not decide"),
    Status.XPASS: ("❗", "!", "#b3541e", "passes although the manifest expects a failure"),
    Status.UNAVAILABLE: ("🚫", "U", "#5f6b7a", "this machine lacks the device or its runtime"),
    Status.SKIP: ("⏩", "S", "#4a6a8a", "skipped by the manifest"),
}
MARKS = {
    status: Mark(symbol=symbol, word=status.value, meaning=meaning, letter=letter, fill=fill)
    for status, (symbol, letter, fill, meaning) in _LOOKS.items()
}

#: Every mark, in the order of the statuses.
LEGEND = (*MARKS.values(), NOT_RUN)


def choose_mark(record: Record | None) -> Mark:
    """Return the mark for a cell; a cell without a record is not run."""
    return NOT_RUN if record is None else MARKS[record.status]
