"""The one source of what a status looks like in a table, on every page and in the terminal.

In: a `Status`, or None for a cell without a record. Out: its `Mark`.
"""

from __future__ import annotations

from dataclasses import dataclass

from exporter.record import Record, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A symbol, the word for it, and what it means."""

    symbol: str
    word: str
    meaning: str


#: A promised cell without a record: never green.
NOT_RUN = Mark(symbol="⬜", word="not run", meaning="promised, and no result yet")

MARKS = {
    Status.PASS: Mark(symbol="✅", word="pass", meaning="every promise was proved on the file"),
    Status.XFAIL: Mark(symbol="🟡", word="xfail", meaning="fails as the manifest foresees"),
    Status.FAIL: Mark(symbol="❌", word="fail", meaning="a check says no"),
    Status.ERROR: Mark(symbol="🟥", word="error", meaning="a stage raised an error"),
    Status.CRASH: Mark(symbol="💥", word="crash", meaning="the worker died"),
    Status.TIMEOUT: Mark(symbol="⏰", word="timeout", meaning="the job took longer than it may"),
    Status.KILLED: Mark(
        symbol="💀", word="killed", meaning="ended from outside, most often for its memory"
    ),
    Status.INCONCLUSIVE: Mark(
        symbol="❓", word="inconclusive", meaning="the comparison could prove nothing"
    ),
    Status.XPASS: Mark(
        symbol="❗", word="xpass", meaning="passes although the manifest expects a failure"
    ),
    Status.UNAVAILABLE: Mark(
        symbol="🚫", word="unavailable", meaning="this machine lacks the device or its runtime"
    ),
    Status.SKIP: Mark(symbol="⏩", word="skip", meaning="left out by the manifest"),
}

#: Every mark, in the order of the statuses.
LEGEND = (*MARKS.values(), NOT_RUN)


def mark_of(record: Record | None) -> Mark:
    """How the cell of `record` looks; None is a cell that was not run."""
    return NOT_RUN if record is None else MARKS[record.status]
