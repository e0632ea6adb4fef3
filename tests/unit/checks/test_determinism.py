from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from exporter.checks.protocol import CheckContext
from exporter.checks.validity_checks import STATEFUL_PREFIX, DeterminismCheck
from exporter.jobs import JobFolder
from exporter.records.record import CheckResult, Status
from tests.unit.checks.contexts import ConstantSession, contract, make_reference


def determinism(unstable: str, mode: Literal["eval", "train", "keep"] = "eval") -> CheckResult:
    subject = CheckContext(
        folder=JobFolder(Path()),
        opset=18,
        spec=contract(mode=mode),
        reference=make_reference(unstable=unstable),
    )
    check = DeterminismCheck()
    assert check.applies(subject)
    return check(subject, ConstantSession(), "cpu")


def test_a_stable_model_passes() -> None:
    assert determinism("") == CheckResult(check="determinism", status=Status.PASS)


def test_a_model_that_differs_from_itself_is_inconclusive() -> None:
    result = determinism("output 'y' differs by 0.5 between two runs")
    assert result.status is Status.INCONCLUSIVE
    assert result.message == (
        "PyTorch differs from itself: output 'y' differs by 0.5 between two runs; "
        "make random numbers an input, or draw them once when the model is built"
    )


@pytest.mark.parametrize("mode", ["train", "keep"])
def test_the_first_fix_is_the_mode(mode: Literal["train", "keep"]) -> None:
    result = determinism("it differs", mode)
    assert result.status is Status.INCONCLUSIVE
    assert f"mode is '{mode}': 'eval' turns dropout" in result.message


def test_state_is_passed_in_and_out() -> None:
    result = determinism(f"{STATEFUL_PREFIX}: output 'y' differs by 0.5")
    assert result.status is Status.INCONCLUSIVE
    assert result.message.endswith("; declare the state as an input and return it as an output")
