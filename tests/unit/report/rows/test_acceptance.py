"""The text about the accepted outcome of a cell."""

from __future__ import annotations

from exporter.records.baseline import make_baseline
from exporter.records.record import Record
from exporter.report.rows.cells import AcceptanceHistory, Cell
from tests.unit.factory import make_record, make_run

OLD = {"torch": "2.12.1", "python": "3.11.15"}
NEW = {"torch": "2.13.0", "python": "3.11.15"}
GREEN, RED = make_record("net/17/cpu"), make_record("net/17/cpu", "fail", check="axes")
FIRST = make_baseline(make_run(GREEN, make_record("net/18/cpu", "error"), tools=OLD))


def cell(record: Record) -> Cell:
    return Cell(id=record.cell, record=record)


def test_without_a_baseline_the_text_is_empty() -> None:
    assert (
        AcceptanceHistory().find_outcome(cell(RED)),
        AcceptanceHistory().describe(cell(RED)),
    ) == (
        "",
        "",
    )


def test_a_changed_cell_names_the_accepted_outcome_and_the_tools() -> None:
    history = AcceptanceHistory(FIRST)
    assert history.find_outcome(cell(RED)) == "pass"
    assert history.describe(cell(RED)) == "pass in the baseline, with torch 2.12.1"


def test_a_new_cell_was_never_accepted() -> None:
    new = cell(make_record("net/19/cpu", "fail"))
    assert AcceptanceHistory(FIRST).find_outcome(new) == "not in the baseline"
    assert AcceptanceHistory(FIRST).describe(new) == "never accepted: it is not in the baseline"


def test_an_accepted_foreseen_failure_has_a_text_only_with_a_reason() -> None:
    foreseen = make_record("net/17/cpu", "xfail")
    accepted = make_baseline(make_run(foreseen))
    assert AcceptanceHistory(accepted).describe(cell(foreseen)) == ""
    assert (
        AcceptanceHistory(FIRST).describe(cell(foreseen))
        == "pass in the baseline, with torch 2.12.1"
    )
    (outcome,) = accepted.cells
    with_reason = accepted.model_copy(
        update={"cells": (outcome.model_copy(update={"reason": "why"}),)}
    )
    assert AcceptanceHistory(with_reason).describe(cell(foreseen)) == "as accepted: why"


def test_an_accepted_failure_has_its_reason() -> None:
    red = make_baseline(make_run(RED, tools=NEW))
    (outcome,) = red.cells
    second = red.model_copy(update={"cells": (outcome.model_copy(update={"reason": "see #12"}),)})
    assert AcceptanceHistory(second).describe(cell(RED)) == "as accepted: see #12"
    assert AcceptanceHistory(red).describe(cell(RED)) == "as accepted"
