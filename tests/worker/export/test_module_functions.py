"""Modules as functions: references to their types, and the hooks that torch leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from exporter.manifest.rules.references import FUNCTIONS
from exporter.worker.export.attempts import ExportContext, resolve_function_types
from exporter.worker.export.convert import convert_module
from exporter.worker.process.failure import Failure
from tests.worker.contracts import declare_output, make_contract
from tests.worker.diagnose.cases import case_of


def _context(types: list[str] | bool) -> ExportContext:
    spec = make_contract(
        "TwoLayers",
        outputs=(declare_output("y", "batch", 3),),
        options={FUNCTIONS: types},
    )
    return case_of(spec, 17, dynamo=False)


def _resolve(types: list[str] | bool) -> Any:
    return resolve_function_types(_context(types)).options[FUNCTIONS]


def test_references_become_types() -> None:
    assert _resolve(["torch.nn:Linear"]) == {torch.nn.Linear}
    assert _resolve(True) is True


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("torch.nn:Dropout", "has no module of the type torch.nn:Dropout; it has Linear"),
        ("torch.nn:functional", "torch.nn:functional is a module, expected a class"),
        ("torch.nn:Linar", "has no attribute 'Linar'"),
    ],
)
def test_references_that_are_no_types_of_the_model(reference: str, message: str) -> None:
    with pytest.raises(Failure, match=message):
        _resolve([reference])


def test_a_second_export_in_one_process(tmp_path: Path) -> None:
    context = _context(["torch.nn:Linear"])
    spec = resolve_function_types(context)
    for name in ("a.onnx", "b.onnx"):
        graph, _ = convert_module(context.model, spec, context.inputs, 17, tmp_path / name)
        assert [function.name for function in graph.functions.values()] == ["Linear"]
        assert [value.name for value in graph.graph.outputs] == [spec.outputs[0].name]
    assert not any(vars(each)["_forward_hooks"] for each in context.model.modules())
