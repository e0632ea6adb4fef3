"""Foreseen failures are met strictly."""

from __future__ import annotations

from datetime import date

import pytest

from exporter.manifest import Expectation
from exporter.planning.expectations import apply_expectations, is_foreseen
from exporter.records.record import (
    CellId,
    Record,
    Stage,
    Status,
)
from tests.unit.planning.test_plan import spec

TODAY = date(2026, 11, 20)
CELL = CellId(model="net", opset=17, device="cpu")


def failure(**changes: object) -> Record:
    values: dict[str, object] = {
        "cell": CELL,
        "status": Status.ERROR,
        "stage": Stage.CONVERT,
        "message": "Exporting the operator 'aten::SDPA' is not supported",
    }
    return Record.model_validate(values | changes)


def judged(record: Record, *expected: Expectation) -> Record:
    return apply_expectations(spec(expect=expected), record, TODAY)


@pytest.mark.parametrize(
    "expectation",
    [
        Expectation(reason="needs 14"),
        Expectation(reason="needs 14", stage="convert"),
        Expectation(reason="needs 14", stage="convert", match="aten::sdpa"),
        Expectation(reason="needs 14", opsets=(16, 17), device="c*"),
        Expectation(reason="needs 14", until="2026-11-20"),
    ],
)
def test_a_failure_that_was_foreseen_is_xfail_with_its_reason(expectation: Expectation) -> None:
    record = judged(failure(), expectation)
    assert record.status is Status.XFAIL
    assert record.foreseen == "needs 14"
    # What went wrong stays readable.
    assert record.stage is Stage.CONVERT
    assert "aten::SDPA" in record.message


@pytest.mark.parametrize(
    ("expectation", "note"),
    [
        (Expectation(reason="r", stage="capture"), "expected a failure at capture (r)"),
        (
            Expectation(reason="r", stage="convert", match="gelu"),
            "expected a failure at convert with 'gelu' (r)",
        ),
        (Expectation(reason="r", check="parity"), "expected a failure of parity (r)"),
        (Expectation(reason="r", until="2026-11-19"), "the expectation ended on 2026-11-19: r"),
    ],
)
def test_another_failure_stays_red_and_says_what_was_expected(
    expectation: Expectation, note: str
) -> None:
    record = judged(failure(), expectation)
    assert record.status is Status.ERROR
    assert record.expectation == note


def test_an_expectation_for_other_cells_says_nothing() -> None:
    for other in (Expectation(reason="r", opsets=(16,)), Expectation(reason="r", device="cuda")):
        assert judged(failure(), other) == failure()


def test_a_pass_against_the_expectation_is_red() -> None:
    record = judged(Record(cell=CELL, status=Status.PASS), Expectation(reason="r", stage="load"))
    assert record.status is Status.XPASS
    assert not record.status.is_green
    assert "a failure at load (r)" in record.message


@pytest.mark.parametrize("status", [Status.SKIP, Status.UNAVAILABLE])
def test_what_was_not_run_meets_no_expectation(status: Status) -> None:
    record = failure(status=status)
    assert judged(record, Expectation(reason="r")) == record


@pytest.mark.parametrize("status", [Status.CRASH, Status.TIMEOUT, Status.KILLED])
def test_a_dead_worker_is_foreseen_only_by_name(status: Status) -> None:
    record = failure(status=status, message="died with signal SIGSEGV")
    assert judged(record, Expectation(reason="r")).status is status
    assert judged(record, Expectation(reason="r", match="SIGSEGV")).status is Status.XFAIL


def test_one_of_several_expectations_is_enough() -> None:
    record = judged(
        failure(),
        Expectation(reason="old", stage="capture"),
        Expectation(reason="new", stage="convert", issue="https://example.org/1"),
    )
    assert record.status is Status.XFAIL
    assert record.foreseen == "new (https://example.org/1)"


@pytest.mark.parametrize(
    ("until", "is_noted"), [("2026-11-20", True), ("2026-12-04", True), ("2026-12-05", False)]
)
def test_an_end_within_two_weeks_is_noted(until: str, is_noted: bool) -> None:
    record = judged(failure(notes=("one",)), Expectation(reason="needs 14", until=until))
    assert record.status is Status.XFAIL
    note = f"the expectation 'needs 14' ends on {until}; from then on this is red"
    assert record.notes == (("one", note) if is_noted else ("one",))


@pytest.mark.parametrize(
    ("status", "until", "stage", "is_so"),
    [
        (Status.ERROR, "2026-11-20", "convert", True),
        (Status.XFAIL, "2026-11-20", "convert", True),
        (Status.XFAIL, "2026-11-19", "convert", False),
        (Status.ERROR, "2026-11-19", "convert", False),
        (Status.ERROR, "2026-11-20", "capture", False),
        (Status.PASS, "2026-11-20", "convert", False),
        (Status.XPASS, "2026-11-20", "convert", False),
        (Status.UNAVAILABLE, "2026-11-20", "convert", False),
    ],
)
def test_an_expectation_is_in_force_while_it_foresees_what_is_there(
    status: Status, until: str, stage: str, is_so: bool
) -> None:
    item = Expectation(reason="needs 14", until=until, stage=stage)
    assert is_foreseen(item, failure(status=status), TODAY) is is_so
