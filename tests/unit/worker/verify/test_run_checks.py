"""The first deciding check gives the verdict of a cell."""

from __future__ import annotations

import time

import pytest

from exporter.records.record import CheckResult, Stage, Status
from exporter.worker.verify.run_checks import REFERENCE, StageTimes, _find_verdict, _run_timed


def result(check: str, status: Status) -> CheckResult:
    return CheckResult(check=check, status=status, message=f"{check}: {status}")


@pytest.mark.parametrize(
    ("statuses", "decides"),
    [
        ({"determinism": Status.PASS, "power": Status.PASS, "parity": Status.PASS}, None),
        ({"determinism": Status.PASS, "power": Status.INCONCLUSIVE}, "power"),
        # A wrong file is wrong, even if the comparison would miss other wrong files.
        ({"power": Status.INCONCLUSIVE, "parity": Status.FAIL}, "parity"),
        ({"power": Status.INCONCLUSIVE, "parity": Status.PASS, "axes": Status.FAIL}, "axes"),
        # A model that is not deterministic proves nothing about its file.
        ({"determinism": Status.INCONCLUSIVE, "parity": Status.FAIL}, "determinism"),
        ({"parity": Status.FAIL, "axes": Status.FAIL}, "parity"),
    ],
)
def test_deciding_check_gives_the_verdict(statuses: dict[str, Status], decides: str | None) -> None:
    results = [result(check, status) for check, status in statuses.items()]
    verdict = _find_verdict(results, Stage.PARITY)
    assert (verdict.check if verdict else None) == decides
    if verdict:
        assert verdict.status is statuses[verdict.check or ""]


def test_every_check_is_timed() -> None:
    def slow(result: CheckResult) -> CheckResult:
        time.sleep(0.02)
        return result

    timed = _run_timed(slow, result("parity", Status.PASS))
    assert timed.seconds >= 0.02
    assert timed.model_copy(update={"seconds": 0.0}) == result("parity", Status.PASS)


def test_times_are_added_by_stage() -> None:
    times = StageTimes()
    for name in (Stage.LOAD, REFERENCE, Stage.LOAD):
        with times.measure(name):
            time.sleep(0.01)
    assert list(times) == ["load", "reference"]
    assert times["load"] >= 0.02
