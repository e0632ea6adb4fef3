"""A reproducer is offered only if a script shows the same failure."""

from __future__ import annotations

import pytest

from exporter.records.record import Blame, Culprit, Stage
from exporter.report.rows.failure_reasons import explain_failure, find_repro_obstacle
from tests.unit.factory import make_record


def blame(culprit: Culprit) -> Blame:
    return Blame(culprit=culprit, sample="batch=7", evidence=())


@pytest.mark.parametrize(
    ("status", "fields", "obstacle"),
    [
        (
            "error",
            {"stage": Stage.SOURCE, "message": "no file"},
            "fails before the export: no file",
        ),
        ("fail", {"stage": Stage.STRUCTURE, "route": None}, "was never exported"),
        ("fail", {"check": "axes", "blame": blame(Culprit.CONTRACT)}, "breaks the contract"),
        ("fail", {"check": "axes", "blame": blame(Culprit.MODEL)}, "differs from itself"),
        ("xfail", {"check": "axes", "blame": blame(Culprit.FILE)}, "a new export gives a right"),
        ("inconclusive", {"check": "axes"}, "the checks prove nothing"),
        ("fail", {"check": "placement"}, "a script cannot repeat the check 'placement'"),
        ("fail", {"check": "values"}, "did not occur again"),
    ],
)
def test_an_obstacle_has_a_reason_and_no_command(
    status: str, fields: dict[str, object], obstacle: str
) -> None:
    record = make_record("alexnet/17/cpu", status, **{"stage": Stage.PARITY, **fields})
    assert obstacle in find_repro_obstacle(record)
    assert explain_failure(record).repro_command == ""


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ("error", {"stage": Stage.CAPTURE}),
        ("error", {"stage": Stage.CONVERT}),
        ("fail", {"stage": Stage.STRUCTURE, "check": "signature"}),
        ("error", {"stage": Stage.LOAD}),
        ("crash", {"stage": Stage.PARITY}),
        ("xfail", {"stage": Stage.PARITY, "check": "axes", "blame": blame(Culprit.EXPORTER)}),
    ],
)
def test_a_failure_of_exporter_or_runtime_has_a_command(
    status: str, fields: dict[str, object]
) -> None:
    record = make_record("alexnet/17/cpu", status, **fields)
    assert find_repro_obstacle(record) == ""
    assert explain_failure(record).repro_command == "exporter repro alexnet/17/cpu"


def test_a_green_cell_has_no_obstacle_and_no_command() -> None:
    record = make_record("alexnet/17/cpu")
    assert find_repro_obstacle(record) == ""
    assert explain_failure(record).repro_command == ""
