"""The attempts of an export: states, captures and the graph optimizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch

from exporter.jobs import OpsetJob
from exporter.manifest import Axis, ModelSpec
from exporter.manifest.rules.layers import FUNCTIONS
from exporter.planning.plan import choose_route
from exporter.records.record import Route, Stage
from exporter.worker.export.attempts import (
    Captures,
    ExportedGraph,
    OpsetExport,
    capture_program,
    export_module,
    export_program,
    follow_route,
    list_routes,
    require_capture,
    resolve_function_types,
)
from exporter.worker.export.convert import convert_module
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import run_model
from exporter.worker.reference.python_state import ModelSnapshot
from tests.worker.contracts import ROOT, declare_input, declare_output, make_contract, make_fill
from tests.worker.diagnosis.cases import case_of
from tests.worker.graphs import draw_declared


def declare(net: str, **changes: object) -> ModelSpec:
    return make_contract(net, **({"source": f"export/state_nets.py:{net}"} | changes))


def declare_sequence(net: str, **changes: object) -> ModelSpec:
    shape = ("batch", "length", 8)
    axes = (Axis(name="batch", example=3), Axis(name="length", example=5))
    inputs, outputs = (declare_input("x", *shape),), (declare_output("y", *shape),)
    return declare(net, inputs=inputs, outputs=outputs, axes=axes, **changes)


def make_context(spec: ModelSpec, opset: int) -> OpsetExport:
    model = load_model(spec, ROOT)
    inputs = draw_declared(spec)
    job = OpsetJob(opset=opset, route=choose_route(spec, opset), devices=())
    return OpsetExport(model=model, inputs=inputs, spec=spec, job=job, root=ROOT)


def export(spec: ModelSpec, opset: int, folder: Path) -> ExportedGraph:
    context = make_context(spec, opset)
    routes = list_routes(spec, context.route, context.model)
    if context.route.exporter == "torchscript":
        return export_module(context, routes, folder / "scratch" / "a.onnx")
    captures = Captures(context.model, spec, context.inputs)
    return export_program(context, routes, captures, folder)


def describe(route: Route) -> tuple[str, str, bool]:
    return route.capture, route.state, route.optimize


def name_routes(spec: ModelSpec, opset: int) -> list[tuple[str, str]]:
    routes = list_routes(spec, choose_route(spec, opset), load_model(spec, ROOT))
    assert all(route.optimize for route in routes)
    return [(route.capture, route.state) for route in routes]


def test_the_manifest_limits_the_routes() -> None:
    inference, plain = ("export", "inference"), ("export", "plain")
    strict = ("strict", "inference")
    assert name_routes(declare("Selective"), 18) == [inference, plain, strict]
    assert name_routes(declare("Selective", capture="export"), 18) == [inference, plain]
    assert name_routes(declare("Selective", capture="strict"), 18) == [strict, ("strict", "plain")]
    only = declare("Selective", export_state="plain")
    assert name_routes(only, 18) == [plain, ("strict", "plain")]
    one = declare("Selective", export_state="inference", capture="export")
    assert name_routes(one, 18) == [inference]
    assert name_routes(declare("Selective"), 17) == [("trace", "inference"), ("trace", "plain")]


def test_a_layer_with_a_fused_path_is_traced_without_it(tmp_path: Path) -> None:
    spec = declare_sequence("Encoder")
    exported = export(spec, 17, tmp_path)
    assert describe(exported.route) == ("trace", "inference", True)
    assert exported.attempts == ()
    # With the fused path and without gradients, PyTorch has an operator that ONNX lacks.
    torch.backends.mha.set_fastpath_enabled(True)  # a test of `record` may have disabled it
    context = make_context(spec, 17)
    with torch.no_grad(), pytest.raises(torch.onnx.errors.UnsupportedOperatorError):
        torch.onnx.export(
            context.model, (context.inputs["x"],), str(tmp_path / "a.onnx"), dynamo=False
        )


def test_a_program_converts_in_the_state_of_its_capture(tmp_path: Path) -> None:
    spec = declare_sequence("BiasedAttention")
    assert export(spec, 18, tmp_path).attempts == ()
    program = capture_program(*read_model(spec), strict=False)
    with pytest.raises(torch.onnx.OnnxExporterError):  # gradients are on
        torch.onnx.export(program, dynamo=True, opset_version=18, verbose=False)


def read_model(spec: ModelSpec) -> tuple[torch.nn.Module, ModelSpec, dict[str, torch.Tensor]]:
    context = make_context(spec, 18)
    assert isinstance(context.model, torch.nn.Module)
    return context.model, spec, dict(context.inputs)


def test_the_plain_state_follows_the_inference_state(tmp_path: Path) -> None:
    exported = export(declare("Selective", init={"gradients": True}), 18, tmp_path)
    assert describe(exported.route) == ("export", "plain", True)
    (attempt,) = exported.attempts
    assert (attempt.capture, attempt.state, attempt.stage) == (
        "export",
        "inference",
        Stage.CAPTURE,
    )
    assert "gradients have the wrong state" in attempt.message
    (note,) = exported.notes
    assert note.startswith("capture 'export' in the inference state fails at capture")
    assert note.endswith("the file is from capture 'export' in the plain state")


def test_strict_capture_follows_both_states(tmp_path: Path) -> None:
    exported = export(declare("Selective", init={"strict": True}), 18, tmp_path)
    assert describe(exported.route) == ("strict", "inference", True)
    assert [(each.capture, each.state) for each in exported.attempts] == [
        ("export", "inference"),
        ("export", "plain"),
    ]


def test_the_first_failure_has_all_attempts(tmp_path: Path) -> None:
    spec = declare("Selective", init={"gradients": True, "strict": True})
    with pytest.raises(Failure) as caught:
        export(spec, 18, tmp_path)
    failure = caught.value
    assert failure.stage is Stage.CAPTURE
    assert "gradients have the wrong state" in failure.message
    assert len(failure.attempts) == 3
    assert "capture 'export' in the plain state: ValueError: the kind" in failure.detail


def test_a_failure_of_the_contract_is_not_tried_again(tmp_path: Path) -> None:
    outputs = (declare_output("y", "batch", 3, dtype="complex64"),)
    with pytest.raises(Failure, match="no complex numbers") as caught:
        export(declare("Selective", outputs=outputs), 17, tmp_path)
    assert caught.value.attempts == ()


def test_a_program_is_captured_once_for_all_opsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    capture = torch.export.export

    def count(*args: Any, **options: Any) -> Any:
        calls.append((options["strict"], torch.is_grad_enabled()))
        return capture(*args, **options)

    monkeypatch.setattr(torch.export, "export", count)
    spec = declare("Selective", init={"gradients": True})
    context = make_context(spec, 18)
    routes = list_routes(spec, context.route, context.model)
    captures = Captures(context.model, spec, context.inputs)
    require_capture(captures, routes)
    for _ in range(2):
        export_program(context, routes, captures, tmp_path)
    assert calls == [(False, False), (False, True)]


def test_without_the_option_a_file_is_written_without_the_optimizer(tmp_path: Path) -> None:
    spec = declare("Halves")
    exported = export(spec, 18, tmp_path)
    assert describe(exported.route) == ("export", "inference", False)
    assert [(each.stage, each.optimize) for each in exported.attempts] == [(Stage.CONVERT, True)]
    (note,) = exported.notes
    assert note.startswith("dynamo's graph optimizer fails (")
    assert note.endswith("; the file is not optimized")
    ir.save(exported.graph, tmp_path / "a.onnx")
    context = make_context(spec, 18)
    (expected,) = run_model(context.model, spec, context.inputs)
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"))
    (actual,) = session.run(None, {"x": context.inputs["x"].numpy()})
    assert isinstance(expected, torch.Tensor)
    np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-5)
    assert follow_route(context, exported).spec.options == {"optimize": False}


def test_the_option_makes_a_failure_of_the_optimizer_an_error(tmp_path: Path) -> None:
    spec = declare("Halves", options={"optimize": True})
    with pytest.raises(Failure) as caught:
        export(spec, 18, tmp_path)
    assert all(attempt.optimize for attempt in caught.value.attempts)
    without = declare("Halves", options={"optimize": False})
    assert export(without, 18, tmp_path).attempts == ()


def test_pytorch_computes_its_outputs_in_the_state_of_the_contract() -> None:
    context = make_context(declare("GradientBranch"), 18)
    (inference,) = run_model(context.model, context.spec, context.inputs)
    plain = context.spec.model_copy(update={"export_state": "plain"})
    (other,) = run_model(context.model, plain, context.inputs)
    assert torch.equal(inference, context.inputs["x"] - 1)
    assert torch.equal(other, context.inputs["x"] + 1)


def test_a_snapshot_removes_the_values_of_a_trace(tmp_path: Path) -> None:
    spec = declare("StoredSize")
    context = make_context(spec, 17)
    routes = list_routes(spec, context.route, context.model)
    state = ModelSnapshot(context.model)
    export_module(context, routes, tmp_path / "scratch" / "a.onnx")
    assert isinstance(vars(context.model)["width"], torch.Tensor)
    state.restore()
    captures = Captures(context.model, spec, context.inputs)
    dynamo = list_routes(spec, choose_route(spec, 18), context.model)
    assert require_capture(captures, dynamo)


def test_a_further_capture_must_keep_every_input(tmp_path: Path) -> None:
    number = declare_input(
        "n", at="args[1]", shape=(), dtype="int64", scalar=True, fill=make_fill("value", value=3)
    )
    outputs = (declare_output("y", "batch", 4),)
    spec = declare("Turns", inputs=(declare_input(), number), outputs=outputs)
    with pytest.raises(Failure, match="inferred a static shape of 3") as caught:
        export(spec, 18, tmp_path)
    assert caught.value.attempts[-1].message == "ValueError: the capture ignores the inputs n"


def test_a_constant_without_values_is_a_failure(tmp_path: Path) -> None:
    spec = declare("Centered", outputs=(declare_output("y", "batch", 4),))
    with pytest.raises(Failure, match="fake tensor") as caught:
        export(spec, 18, tmp_path)
    assert "constant without values" in caught.value.attempts[-1].message


def _context(types: list[str] | bool) -> OpsetExport:
    spec = make_contract("TwoLayers", "x [batch, 4] -> y [batch, 3]", options={FUNCTIONS: types})
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
