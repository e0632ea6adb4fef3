"""Which of several checks decides a cell."""

from __future__ import annotations

import time

import pytest

from exporter.records.record import CheckResult, Stage, Status
from exporter.worker.verify.run_checks import (
    REFERENCE,
    StageTimes,
    _first_no,
    _timed,
)


def result(check: str, status: Status) -> CheckResult:
    return CheckResult(check=check, status=status, message=f"{check} says {status}")


@pytest.mark.parametrize(
    ("statuses", "decides"),
    [
        ({"determinism": Status.PASS, "power": Status.PASS, "parity": Status.PASS}, None),
        ({"determinism": Status.PASS, "power": Status.INCONCLUSIVE}, "power"),
        # A wrong file is wrong, whether or not the comparison could tell all wrong ones.
        ({"power": Status.INCONCLUSIVE, "parity": Status.FAIL}, "parity"),
        ({"power": Status.INCONCLUSIVE, "parity": Status.PASS, "axes": Status.FAIL}, "axes"),
        # A model that differs from itself says nothing about its file.
        ({"determinism": Status.INCONCLUSIVE, "parity": Status.FAIL}, "determinism"),
        ({"parity": Status.FAIL, "axes": Status.FAIL}, "parity"),
    ],
)
def test_the_check_that_decides(statuses: dict[str, Status], decides: str | None) -> None:
    results = [result(check, status) for check, status in statuses.items()]
    outcome = _first_no(results, Stage.PARITY)
    assert (outcome.check if outcome else None) == decides
    if outcome:
        assert outcome.status is statuses[outcome.check or ""]


def test_every_check_is_timed() -> None:
    def slow(answer: CheckResult) -> CheckResult:
        time.sleep(0.02)
        return answer

    found = _timed(slow, result("parity", Status.PASS))
    assert found.seconds >= 0.02
    assert found.model_copy(update={"seconds": 0.0}) == result("parity", Status.PASS)


def test_seconds_add_up_by_stage_and_for_the_reference() -> None:
    seconds = StageTimes()
    for name in (Stage.LOAD, REFERENCE, Stage.LOAD):
        with seconds.of(name):
            time.sleep(0.01)
    assert list(seconds) == ["load", "reference"]
    assert seconds["load"] >= 0.02
