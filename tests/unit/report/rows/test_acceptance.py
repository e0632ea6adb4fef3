"""What a page says of what was accepted before."""

from __future__ import annotations

from exporter.records.baseline import baseline_of
from exporter.records.history import History, followed
from exporter.records.record import Record
from exporter.report.rows.acceptance import AcceptanceHistory
from exporter.report.rows.cells import Cell
from tests.unit.factory import make_record, make_run

OLD = {"torch": "2.12.1", "python": "3.11.15"}
NEW = {"torch": "2.13.0", "python": "3.11.15"}
GREEN, RED = make_record("net/17/cpu"), make_record("net/17/cpu", "fail", check="axes")
FIRST = baseline_of(make_run(GREEN, make_record("net/18/cpu", "error"), tools=OLD))
HISTORY = followed(History(), None, FIRST)


def cell(record: Record) -> Cell:
    return Cell(id=record.cell, record=record)


def test_without_a_baseline_nothing_is_said() -> None:
    assert (AcceptanceHistory().accepted(cell(RED)), AcceptanceHistory().since(cell(RED))) == (
        "",
        "",
    )


def test_a_cell_that_is_another_names_the_accepted_outcome_and_the_tools() -> None:
    past = AcceptanceHistory(FIRST, HISTORY)
    assert past.accepted(cell(RED)) == "pass"
    assert past.since(cell(RED)) == "pass in the baseline, with torch 2.12.1"


def test_a_cell_that_was_never_accepted() -> None:
    new = cell(make_record("net/19/cpu", "fail"))
    assert AcceptanceHistory(FIRST).accepted(new) == "not in the baseline"
    assert AcceptanceHistory(FIRST).since(new) == "never accepted: it is not in the baseline"


def test_what_is_foreseen_and_accepted_needs_no_word() -> None:
    foreseen = make_record("net/17/cpu", "xfail")
    accepted = baseline_of(make_run(foreseen))
    assert AcceptanceHistory(accepted).since(cell(foreseen)) == ""
    assert (
        AcceptanceHistory(FIRST).since(cell(foreseen)) == "pass in the baseline, with torch 2.12.1"
    )
    (outcome,) = accepted.cells
    said = accepted.model_copy(update={"cells": (outcome.model_copy(update={"reason": "why"}),)})
    assert AcceptanceHistory(said).since(cell(foreseen)) == "as accepted: why"


def test_an_accepted_failure_says_since_when_and_why() -> None:
    red = baseline_of(make_run(RED, make_record("net/18/cpu", "error"), tools=NEW))
    (outcome, other) = red.cells
    second = red.model_copy(
        update={"cells": (outcome.model_copy(update={"reason": "see #12"}), other)}
    )
    past = AcceptanceHistory(second, followed(HISTORY, FIRST, second))
    assert past.since(cell(RED)) == (
        "as accepted, since baseline 2 of 2 (before: pass; torch 2.12.1 to 2.13.0): see #12"
    )
    assert past.since(cell(make_record("net/18/cpu", "error"))) == (
        "as accepted, since the first baseline"
    )
    assert AcceptanceHistory(second).since(cell(RED)) == "as accepted: see #12"
