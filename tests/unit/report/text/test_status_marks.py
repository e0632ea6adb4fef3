from __future__ import annotations

import unicodedata

from exporter.records.record import Status
from exporter.report.text.status_marks import (
    LEGEND,
    MARKS,
    NOT_RUN,
    choose_mark,
)
from tests.unit.factory import make_record


def test_every_status_has_its_own_mark() -> None:
    assert set(MARKS) == set(Status)
    assert len({mark.symbol for mark in LEGEND}) == len({mark.word for mark in LEGEND})
    assert len(LEGEND) == len(Status) + 1
    assert all(MARKS[status].word == status for status in Status)


def test_symbols_are_one_character_of_two_columns() -> None:
    """Columns of a table in the terminal need equal widths."""
    for mark in LEGEND:
        assert unicodedata.east_asian_width(mark.symbol) == "W"


def test_a_cell_without_a_record_is_not_run() -> None:
    assert choose_mark(None) is NOT_RUN
    assert choose_mark(make_record("a/9/cpu", "crash")) is MARKS[Status.CRASH]
