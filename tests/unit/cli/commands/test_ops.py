"""What `exporter ops MODEL` says, and when it is red."""

from __future__ import annotations

import pytest

from exporter.cli.commands.ops import show_lacking
from exporter.records.record import MissingOperator
from exporter.tools.operators.protocol import SurveyResponse, OperatorGaps
from tests.unit.factory import DYNAMO, TORCHSCRIPT

ROUTES = {13: TORCHSCRIPT, 14: TORCHSCRIPT, 18: DYNAMO}
SDPA = MissingOperator(operator="aten::sdpa", count=2, sources=("m.py:3", "m.py:7"))


def ts(opset: int, *missing: MissingOperator, problem: str = "") -> OperatorGaps:
    return OperatorGaps(exporter="torchscript", opset=opset, missing=missing, problem=problem)


def dynamo(opset: int, *missing: MissingOperator, problem: str = "") -> OperatorGaps:
    return OperatorGaps(exporter="dynamo", opset=opset, missing=missing, problem=problem)


def shown(capsys: pytest.CaptureFixture[str], *found: OperatorGaps) -> tuple[bool, list[str]]:
    is_red = show_lacking("net", ROUTES, SurveyResponse(gaps=found))
    return is_red, capsys.readouterr().out.splitlines()


def test_a_model_that_lacks_nothing_is_green(capsys: pytest.CaptureFixture[str]) -> None:
    is_red, lines = shown(capsys, ts(13), ts(14), dynamo(18))
    assert not is_red
    assert lines == ["net: TorchScript 13-14: lacks nothing", "net: dynamo 18: lacks nothing"]


def test_what_is_missing_at_a_promised_opset_is_red(capsys: pytest.CaptureFixture[str]) -> None:
    is_red, lines = shown(capsys, ts(13, SDPA), ts(14), dynamo(18))
    assert is_red
    assert lines[:4] == [
        "net: TorchScript 14: lacks nothing",
        "net: TorchScript 13: lacks",
        "  operator    uses  opsets  at",
        "  aten::sdpa  2x    13      m.py:3, m.py:7",
    ]


def test_the_same_at_several_opsets_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    _, lines = shown(capsys, ts(13, SDPA), ts(14, SDPA))
    assert lines[-1] == "  aten::sdpa  2x    13-14   m.py:3, m.py:7"


def test_the_other_exporter_may_lack_what_it_likes(capsys: pytest.CaptureFixture[str]) -> None:
    is_red, lines = shown(capsys, ts(13), ts(14), ts(18, SDPA), dynamo(18))
    assert not is_red
    assert "net: TorchScript 18 (which does not make these files): lacks" in lines


@pytest.mark.parametrize("found", [ts(13, problem="cannot be traced"), dynamo(18, problem="no")])
def test_what_could_not_be_found_out_is_no_green(
    found: OperatorGaps, capsys: pytest.CaptureFixture[str]
) -> None:
    is_red, lines = shown(capsys, found)
    assert is_red
    assert found.problem in lines[0]


def test_a_model_that_cannot_be_built_is_red(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_lacking("net", ROUTES, SurveyResponse(gaps=(), problem="no weights\x1b[31m"))
    assert capsys.readouterr().out == "net: no weights\n"
