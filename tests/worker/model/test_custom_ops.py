"""Custom operators: the time of their registration, and invalid entries."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from exporter.manifest import CustomOp, ModelSpec
from exporter.records.record import Stage
from exporter.worker.diagnosis.explanation import find_missing_operators
from exporter.worker.export.convert import convert_module
from exporter.worker.model.call_objects import CustomOps
from exporter.worker.model.custom_ops import load_custom_ops
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure
from tests.worker.contracts import ROOT, declare, make_contract
from tests.worker.diagnosis.cases import case_of
from tests.worker.graphs import draw_declared

FILE = "../features/models/custom_operators.py"
FOO = "custom_ops::foo"


def build_spec(net: str, *entries: CustomOp, **changes: object) -> ModelSpec:
    ends = declare("x [batch, 4] -> y [batch, 4]")
    return make_contract(net, source=f"{FILE}:{net}", custom_ops=entries, **{**ends, **changes})


def symbolic(function: str, opset: int = 1) -> CustomOp:
    return CustomOp(name=FOO, symbolic=f"{FILE}:{function}", opset=opset)


def operators(spec: ModelSpec, opset: int, folder: Path) -> list[str]:
    model = load_model(spec, ROOT)
    custom = load_custom_ops(spec, ROOT)
    inputs = draw_declared(spec)
    graph, _ = convert_module(model, spec, inputs, opset, folder / "a.onnx", custom)
    return [node.op_type for node in graph.graph if node.op_type != "Constant"]


def test_a_symbolic_function_is_unregistered_after_the_export(tmp_path: Path) -> None:
    spec = build_spec("Foo", symbolic("symbolic_foo"))
    assert operators(spec, 17, tmp_path) == ["Gemm", "Foo", "Tanh"]
    with pytest.raises(Failure) as raised:
        operators(build_spec("Foo"), 17, tmp_path)
    assert raised.value.stage is Stage.CONVERT


def test_a_symbolic_function_is_unregistered_after_a_failure(tmp_path: Path) -> None:
    spec = build_spec(
        "Foo", CustomOp(name="aten::tanh", symbolic=f"{FILE}:broken"), symbolic("broken")
    )
    with pytest.raises(Failure, match="broken"):
        operators(spec, 17, tmp_path)
    sound = build_spec("Foo", symbolic("symbolic_of_onnx"))
    assert operators(sound, 17, tmp_path) == ["Gemm", "Mul", "Add", "Tanh"]


def test_operators_with_a_custom_entry_are_not_missing(tmp_path: Path) -> None:
    case = case_of(build_spec("Cumulative"), 18, dynamo=True)
    message = "No ONNX function found for <OpOverload(op='prims.prod', overload='default')>"
    assert [item.operator for item in find_missing_operators(message, case)] == [
        "prims.prod.default"
    ]
    spec = build_spec(
        "Cumulative",
        CustomOp(name="aten.cumprod.default", translation=f"{FILE}:onnx_cumprod"),
    )
    custom = load_custom_ops(spec, ROOT)
    assert list(custom.get_translations(18)) == [torch.ops.aten.cumprod.default]
    assert list(CustomOps().get_translations(18)) == []


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"name": "custom_ops.no_such.default", "translation": f"{FILE}:onnx_foo"},
            "PyTorch has no operator custom_ops::no_such after the model is built",
        ),
        (
            {"name": "aten.add.Tensr", "translation": f"{FILE}:onnx_foo"},
            "; did you mean 'Tensor'?",
        ),
        ({"name": FOO, "symbolic": f"{FILE}:FOO_DOMAIN"}, "is a str, expected a function"),
        (
            {"name": "aten::selu", "onnxscript": f"{FILE}:symbolic_foo"},
            "is a function, expected a function of onnxscript",
        ),
        ({"name": FOO, "symbolic": f"{FILE}:nowhere"}, "nowhere"),
        (
            {"name": "custom_domain::Foo", "reference": f"{FILE}:symbolic_foo"},
            "expected an onnx.reference.op_run.OpRun",
        ),
    ],
)
def test_an_invalid_entry_fails_at_source(entry: dict[str, str], message: str) -> None:
    spec = build_spec("Foo", CustomOp(**entry))
    load_model(spec, ROOT)
    with pytest.raises(Failure) as raised:
        load_custom_ops(spec, ROOT)
    assert raised.value.stage is Stage.SOURCE
    assert message in raised.value.message
    assert str(ROOT) not in raised.value.message


def test_a_function_of_onnxscript_accepts_all_arguments_of_the_operator(tmp_path: Path) -> None:
    spec = build_spec("Selu", CustomOp(name="aten::leaky_relu", onnxscript=f"{FILE}:selu"))
    with pytest.raises(Failure, match=r"aten::leaky_relu has 2 arguments, .*selu accepts 1"):
        operators(spec, 15, tmp_path)


def test_an_attribute_of_a_function_gets_the_constant_of_the_model(tmp_path: Path) -> None:
    spec = build_spec("Selu", CustomOp(name="aten::leaky_relu", onnxscript=f"{FILE}:leaky_relu"))
    model = load_model(spec, ROOT)
    inputs = draw_declared(spec)
    custom = load_custom_ops(spec, ROOT)
    graph, _ = convert_module(model, spec, inputs, 15, tmp_path / "a.onnx", custom)
    (node,) = [node for node in graph.graph if node.domain == "own"]
    assert node.attributes["slope"].value == pytest.approx(0.3)
    assert [function.name for function in graph.functions.values()] == ["leaky_relu"]
