"""All missing operators with counts and the model's lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.worker.diagnosis.explanation import find_missing_operators
from exporter.worker.export.attempts import OpsetExport
from exporter.worker.export.convert import convert_module, convert_program
from exporter.worker.process.failure import Failure
from tests.worker.diagnosis.cases import case_of, explain, wrong_contract
from tests.worker.diagnosis.test_fault_analysis import line_with


def convert(case: OpsetExport, folder: Path) -> None:
    if case.program is not None:
        convert_program(case.program, case.spec, case.opset, folder, case.decompositions)
    else:
        convert_module(case.model, case.spec, case.inputs, case.opset, folder / "a.onnx")


def failure_of(case: OpsetExport, folder: Path) -> Failure:
    with pytest.raises(Failure) as caught:
        convert(case, folder)
    return caught.value


@pytest.mark.parametrize(
    ("opset", "dynamo", "names"),
    [
        (13, False, ["aten::special_bessel_j0", "aten::special_airy_ai"]),
        (18, True, ["prims.bessel_j0.default", "aten.special_airy_ai.default"]),
    ],
)
def test_every_missing_operator_is_listed(
    opset: int, dynamo: bool, names: list[str], tmp_path: Path
) -> None:
    case = case_of(wrong_contract("Lacking"), opset, dynamo=dynamo)
    fields = explain(failure_of(case, tmp_path), case)
    assert [item.operator for item in fields["missing"]] == names
    assert [item.count for item in fields["missing"]] == [2, 1]
    first, second = line_with("q = torch.special.bessel_j0(x)"), line_with("bessel_j0(x + 1)")
    assert fields["missing"][0].sources == (first, second)
    assert fields["missing"][1].sources == (line_with("airy_ai"),)
    assert fields["message"].count("\n") == 0
    assert "bessel_j0" in fields["message"]
    assert fields["message"].endswith("(and 1 more operator missing)")


@pytest.mark.parametrize("dynamo", [False, True])
def test_only_the_reported_operator_is_missing(dynamo: bool) -> None:
    case = case_of(wrong_contract("Chain"), 18, dynamo=dynamo)
    message = "Exporting the operator 'aten::foo' to ONNX opset version 18 is not supported"
    (operator,) = find_missing_operators(message, case)
    # Only the operator in the message of the exporter.
    assert (operator.operator, operator.count, operator.sources) == ("aten::foo", 1, ())


def test_operator_of_a_later_opset_is_counted(tmp_path: Path) -> None:
    case = case_of(wrong_contract("Written"), 9, dynamo=False)
    fields = explain(failure_of(case, tmp_path), case)
    assert "index_put in opset 9" in fields["message"]
    (operator,) = fields["missing"]
    assert (operator.operator, operator.count) == ("aten::index_put", 2)
    assert operator.sources == (line_with("x[:, [0, 2]] = 1.0"), line_with("x[[0, 1]] = 2.0"))


def test_other_failures_have_no_missing_operators() -> None:
    case = case_of(wrong_contract("Lacking"), 13, dynamo=False)
    assert find_missing_operators("RuntimeError: no memory", case) == ()
