"""Which of several checks decides a cell."""

from __future__ import annotations

import pytest

from exporter.record import CheckResult, Stage, Status
from exporter.worker.prove import _first_no


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
