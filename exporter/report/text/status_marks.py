"""The one source of what a status looks like in a table, on every page and in the terminal.

In: a `Status`, or None for a cell without a record. Out: its `Mark`.
"""

from __future__ import annotations

from dataclasses import dataclass

from exporter.records.record import Record, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A symbol, the word for it, what it means, and how a picture shows it."""

    symbol: str
    word: str
    meaning: str
    letter: str
    fill: str
    """A colour on which white letters are read."""


#: A promised cell without a record: never green.
NOT_RUN = Mark(
    symbol="⬜", word="not run", meaning="promised, and no result yet", letter=".", fill="#8a939e"
)

#: Symbol, letter, colour and meaning.
_LOOKS = {
    Status.PASS: ("✅", "P", "#2a7d3c", "every promise was proved on the file"),
    Status.XFAIL: ("🟡", "x", "#8f6a00", "fails as the manifest foresees"),
    Status.FAIL: ("❌", "F", "#c0392b", "a check says no"),
    Status.ERROR: ("🟥", "E", "#a5283a", "a stage raised an error"),
    Status.CRASH: ("💥", "C", "#8e2a6b", "the worker died"),
    Status.TIMEOUT: ("⏰", "T", "#9a4a12", "the job took longer than it may"),
    Status.KILLED: ("💀", "K", "#5b2a86", "ended from outside, most often for its memory"),
    Status.INCONCLUSIVE: ("❓", "?", "#6a4fb0", "the comparison could prove nothing"),
    Status.XPASS: ("❗", "!", "#b3541e", "passes although the manifest expects a failure"),
    Status.UNAVAILABLE: ("🚫", "U", "#5f6b7a", "this machine lacks the device or its runtime"),
    Status.SKIP: ("⏩", "S", "#4a6a8a", "left out by the manifest"),
}
MARKS = {
    status: Mark(symbol=symbol, word=status.value, meaning=meaning, letter=letter, fill=fill)
    for status, (symbol, letter, fill, meaning) in _LOOKS.items()
}

#: Every mark, in the order of the statuses.
LEGEND = (*MARKS.values(), NOT_RUN)


def mark_of(record: Record | None) -> Mark:
    """How the cell of `record` looks; None is a cell that was not run."""
    return NOT_RUN if record is None else MARKS[record.status]
