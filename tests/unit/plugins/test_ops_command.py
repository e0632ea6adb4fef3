"""The lines of `exporter ops MODEL`, and when they are red."""

from __future__ import annotations

import pytest

from exporter.plugins.ops.command import show_missing_operators
from exporter.plugins.ops.operators import OperatorGaps, SurveyResponse
from exporter.records.record import MissingOperator
from tests.unit.factory import DYNAMO, TORCHSCRIPT

ROUTES = {13: TORCHSCRIPT, 14: TORCHSCRIPT, 18: DYNAMO}
SDPA = MissingOperator(operator="aten::sdpa", count=2, sources=("m.py:3", "m.py:7"))


def ts(opset: int, *missing: MissingOperator, problem: str = "") -> OperatorGaps:
    return OperatorGaps(exporter="torchscript", opset=opset, missing=missing, problem=problem)


def dynamo(opset: int, *missing: MissingOperator, problem: str = "") -> OperatorGaps:
    return OperatorGaps(exporter="dynamo", opset=opset, missing=missing, problem=problem)


def print_gaps(capsys: pytest.CaptureFixture[str], *gaps: OperatorGaps) -> tuple[bool, list[str]]:
    is_red = show_missing_operators("net", ROUTES, SurveyResponse(gaps=gaps))
    return is_red, capsys.readouterr().out.splitlines()


def test_a_model_without_missing_operators_is_green(capsys: pytest.CaptureFixture[str]) -> None:
    is_red, lines = print_gaps(capsys, ts(13), ts(14), dynamo(18))
    assert not is_red
    assert lines == [
        "net: TorchScript 13..14: all operators supported",
        "net: dynamo 18: all operators supported",
    ]


def test_a_missing_operator_at_a_declared_opset_is_red(capsys: pytest.CaptureFixture[str]) -> None:
    is_red, lines = print_gaps(capsys, ts(13, SDPA), ts(14), dynamo(18))
    assert is_red
    assert lines[:4] == [
        "net: TorchScript 14: all operators supported",
        "net: TorchScript 13: missing operators",
        "  operator    uses  opsets  at",
        "  aten::sdpa  2x    13      m.py:3, m.py:7",
    ]


def test_an_operator_at_several_opsets_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    _, lines = print_gaps(capsys, ts(13, SDPA), ts(14, SDPA))
    assert lines[-1] == "  aten::sdpa  2x    13..14  m.py:3, m.py:7"


def test_the_other_exporter_may_lack_operators(capsys: pytest.CaptureFixture[str]) -> None:
    is_red, lines = print_gaps(capsys, ts(13), ts(14), ts(18, SDPA), dynamo(18))
    assert not is_red
    assert "net: TorchScript 18 (not used for these files): missing operators" in lines


@pytest.mark.parametrize("gap", [ts(13, problem="cannot be traced"), dynamo(18, problem="no")])
def test_an_unknown_result_is_red(gap: OperatorGaps, capsys: pytest.CaptureFixture[str]) -> None:
    is_red, lines = print_gaps(capsys, gap)
    assert is_red
    assert gap.problem in lines[0]


def test_a_model_that_cannot_be_created_is_red(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_missing_operators(
        "net", ROUTES, SurveyResponse(gaps=(), problem="no weights\x1b[31m")
    )
    assert capsys.readouterr().out == "net: no weights\n"
