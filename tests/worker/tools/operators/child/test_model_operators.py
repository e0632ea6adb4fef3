"""All that a model lacks, without a file, at every opset and under both exporters."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.manifest import ModelSpec
from exporter.planning.plan import choose_route
from exporter.records.record import Stage
from exporter.tools.operators.child import model_operators as ours
from exporter.tools.operators.child.model_operators import find_operator_gaps
from exporter.tools.operators.protocol import OperatorGaps, SurveyRequest, SurveyResponse
from exporter.worker.process.failure import Failure
from exporter.worker.torch_private import guards
from tests.worker.contracts import ROOT
from tests.worker.diagnose.cases import wrong_contract
from tests.worker.diagnose.test_fault_analysis import line_with


def asked(spec: ModelSpec, *opsets: int) -> SurveyResponse:
    routes = {opset: choose_route(spec, opset) for opset in opsets}
    return find_operator_gaps(SurveyRequest(spec=spec, root=str(ROOT), routes=routes))


def at(answer: SurveyResponse, exporter: str, opset: int) -> OperatorGaps:
    (found,) = [i for i in answer.found if (i.exporter, i.opset) == (exporter, opset)]
    return found


def names(found: OperatorGaps) -> list[tuple[str, int]]:
    return [(item.operator, item.count) for item in found.missing]


def test_both_exporters_are_asked_where_both_are_free() -> None:
    answer = asked(wrong_contract("Lacking"), 13, 18)
    asked_of = [(item.exporter, item.opset) for item in answer.found]
    assert asked_of == [("torchscript", 13), ("dynamo", 18), ("torchscript", 18)]
    ts = [("aten::special_bessel_j0", 2), ("aten::special_airy_ai", 1)]
    assert names(at(answer, "torchscript", 13)) == ts
    assert names(at(answer, "torchscript", 18)) == ts
    found = at(answer, "dynamo", 18)
    assert names(found) == [("prims.bessel_j0.default", 2), ("aten.special_airy_ai.default", 1)]
    assert found.missing[1].sources == (line_with("airy_ai"),)


def test_a_model_that_lacks_nothing() -> None:
    answer = asked(wrong_contract("Chain"), 13, 18)
    assert all((item.missing, item.problem) == ((), "") for item in answer.found)
    assert len(answer.found) == 3


def test_what_is_registered_and_refused_is_found() -> None:
    answer = asked(wrong_contract("Written"), 9, 11)
    assert names(at(answer, "torchscript", 9)) == [("aten::index_put", 2)]
    assert names(at(answer, "torchscript", 11)) == []


def test_a_capture_that_the_manifest_names_asks_its_exporter_alone() -> None:
    answer = asked(wrong_contract("Chain", exporter="torchscript", capture="trace"), 18)
    assert [(item.exporter, item.opset) for item in answer.found] == [("torchscript", 18)]


def test_a_model_that_cannot_be_built_is_told() -> None:
    answer = asked(wrong_contract("NoSuchNet"), 13)
    assert answer.found == ()
    assert "NoSuchNet" in answer.problem


def test_a_model_that_cannot_be_captured_is_no_green(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise Failure(Stage.CAPTURE, "data-dependent")

    monkeypatch.setattr(ours, "capture_program", fails)
    found = at(asked(wrong_contract("Chain"), 18), "dynamo", 18)
    assert found.problem == "cannot be captured: data-dependent"


def test_a_program_that_cannot_be_decomposed_is_no_green(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("no way")

    monkeypatch.setattr(ours, "untranslatable", fails)
    found = at(asked(wrong_contract("Chain"), 18), "dynamo", 18)
    assert found.problem == "cannot be decomposed: ValueError: no way"


def test_an_unknown_torch_converts_to_find_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(guards, "_TESTED", dict.fromkeys(guards._TESTED, ()))
    found = at(asked(wrong_contract("Lacking"), 18), "dynamo", 18)
    assert found.missing, "what the exporter itself said"
    assert at(asked(wrong_contract("Chain"), 18), "dynamo", 18).missing == ()
