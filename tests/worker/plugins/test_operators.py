"""The operators that a model lacks, without a file, at every opset and with both exporters."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.manifest import ModelSpec
from exporter.planning.plan import choose_route
from exporter.plugins.ops import child as operators
from exporter.plugins.ops.child import find_operator_gaps
from exporter.plugins.ops.operators import OperatorGaps, SurveyResponse
from exporter.records.record import Stage
from exporter.worker.process.failure import Failure
from exporter.worker.torch_private import guards
from tests.worker.contracts import ROOT
from tests.worker.plugins.diagnosis.cases import wrong_contract
from tests.worker.plugins.diagnosis.test_fault_analysis import line_with


def survey(spec: ModelSpec, *opsets: int) -> SurveyResponse:
    routes = {opset: choose_route(spec, opset) for opset in opsets}
    return find_operator_gaps(spec, ROOT, routes)


def gaps_at(response: SurveyResponse, exporter: str, opset: int) -> OperatorGaps:
    (gaps,) = [i for i in response.gaps if (i.exporter, i.opset) == (exporter, opset)]
    return gaps


def names(gaps: OperatorGaps) -> list[tuple[str, int]]:
    return [(item.operator, item.count) for item in gaps.missing]


def test_both_exporters_are_examined_if_the_manifest_allows_both() -> None:
    response = survey(wrong_contract("Lacking"), 13, 18)
    examined = [(item.exporter, item.opset) for item in response.gaps]
    assert examined == [("torchscript", 13), ("dynamo", 18), ("torchscript", 18)]
    ts = [("aten::special_bessel_j0", 2), ("aten::special_airy_ai", 1)]
    assert names(gaps_at(response, "torchscript", 13)) == ts
    assert names(gaps_at(response, "torchscript", 18)) == ts
    gaps = gaps_at(response, "dynamo", 18)
    assert names(gaps) == [("prims.bessel_j0.default", 2), ("aten.special_airy_ai.default", 1)]
    assert gaps.missing[1].sources == (line_with("airy_ai"),)


def test_a_model_that_lacks_nothing() -> None:
    response = survey(wrong_contract("Chain"), 13, 18)
    assert all((item.missing, item.problem) == ((), "") for item in response.gaps)
    assert len(response.gaps) == 3


def test_registered_operators_that_refuse_are_listed() -> None:
    response = survey(wrong_contract("Written"), 9, 11)
    assert names(gaps_at(response, "torchscript", 9)) == [("aten::index_put", 2)]
    assert names(gaps_at(response, "torchscript", 11)) == []


def test_a_capture_in_the_manifest_limits_the_exporters() -> None:
    response = survey(wrong_contract("Chain", exporter="torchscript", capture="trace"), 18)
    assert [(item.exporter, item.opset) for item in response.gaps] == [("torchscript", 18)]


def test_a_model_that_cannot_be_built_is_a_problem() -> None:
    response = survey(wrong_contract("NoSuchNet"), 13)
    assert response.gaps == ()
    assert "NoSuchNet" in response.problem


def test_a_model_that_cannot_be_captured_has_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise Failure(Stage.CAPTURE, "data-dependent")

    monkeypatch.setattr(operators, "capture_program", fails)
    gaps = gaps_at(survey(wrong_contract("Chain"), 18), "dynamo", 18)
    assert gaps.problem == "cannot be captured: data-dependent"


def test_a_program_that_cannot_be_decomposed_has_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("no way")

    monkeypatch.setattr(operators, "find_untranslated_nodes", fails)
    gaps = gaps_at(survey(wrong_contract("Chain"), 18), "dynamo", 18)
    assert gaps.problem == "cannot be decomposed: ValueError: no way"


def test_an_unknown_torch_converts_the_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(guards, "_TESTED", dict.fromkeys(guards._TESTED, ()))
    gaps = gaps_at(survey(wrong_contract("Lacking"), 18), "dynamo", 18)
    assert gaps.missing, "read from the error of the exporter"
    assert gaps_at(survey(wrong_contract("Chain"), 18), "dynamo", 18).missing == ()
