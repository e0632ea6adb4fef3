"""The one source of what a status looks like in a table, on every page and in the terminal.

In: a `Status`, or None for a cell without a record. Out: its `Mark`.
"""

from __future__ import annotations

from dataclasses import dataclass

from exporter.record import Record, Status


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

MARKS = {
    Status.PASS: Mark(
        symbol="✅",
        word="pass",
        meaning="every promise was proved on the file",
        letter="P",
        fill="#2a7d3c",
    ),
    Status.XFAIL: Mark(
        symbol="🟡",
        word="xfail",
        meaning="fails as the manifest foresees",
        letter="x",
        fill="#8f6a00",
    ),
    Status.FAIL: Mark(
        symbol="❌", word="fail", meaning="a check says no", letter="F", fill="#c0392b"
    ),
    Status.ERROR: Mark(
        symbol="🟥", word="error", meaning="a stage raised an error", letter="E", fill="#a5283a"
    ),
    Status.CRASH: Mark(
        symbol="💥", word="crash", meaning="the worker died", letter="C", fill="#8e2a6b"
    ),
    Status.TIMEOUT: Mark(
        symbol="⏰",
        word="timeout",
        meaning="the job took longer than it may",
        letter="T",
        fill="#9a4a12",
    ),
    Status.KILLED: Mark(
        symbol="💀",
        word="killed",
        meaning="ended from outside, most often for its memory",
        letter="K",
        fill="#5b2a86",
    ),
    Status.INCONCLUSIVE: Mark(
        symbol="❓",
        word="inconclusive",
        meaning="the comparison could prove nothing",
        letter="?",
        fill="#6a4fb0",
    ),
    Status.XPASS: Mark(
        symbol="❗",
        word="xpass",
        meaning="passes although the manifest expects a failure",
        letter="!",
        fill="#b3541e",
    ),
    Status.UNAVAILABLE: Mark(
        symbol="🚫",
        word="unavailable",
        meaning="this machine lacks the device or its runtime",
        letter="U",
        fill="#5f6b7a",
    ),
    Status.SKIP: Mark(
        symbol="⏩", word="skip", meaning="left out by the manifest", letter="S", fill="#4a6a8a"
    ),
}

#: Every mark, in the order of the statuses.
LEGEND = (*MARKS.values(), NOT_RUN)


def mark_of(record: Record | None) -> Mark:
    """How the cell of `record` looks; None is a cell that was not run."""
    return NOT_RUN if record is None else MARKS[record.status]
