"""Each culprit is found with a file or a runtime that is wrong in a known way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper

from exporter.manifest import Axis, Case, Device, Tolerance
from exporter.records.record import Culprit, Status
from exporter.runtimes import LoadFailure, Session, open_session
from exporter.worker.diagnosis import explanation
from exporter.worker.diagnosis import fault_analysis as blame
from exporter.worker.job_output import diagnosis_seconds
from exporter.worker.verify import run_checks as prove
from tests.traps.fusions import FUSIONS
from tests.traps.prove import make_record
from tests.worker.contracts import declare_input, declare_output
from tests.worker.diagnosis.cases import blame_of, case_of, check_export, wrong_contract

HERE = "tests/worker/diagnosis/wrong_nets.py"


def line_with(text: str) -> str:
    """Return `wrong_nets.py:<line>` of the only line with the text."""
    lines = (Path(__file__).with_name("wrong_nets.py")).read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if text in line]
    return f"{HERE}:{number}"


def damage_weight(path: Path) -> None:
    """Change one element of the sixth layer's weight by 0.05."""
    model = onnx.load(path)
    (weight,) = [item for item in model.graph.initializer if item.name.endswith("5.weight")]
    array = numpy_helper.to_array(weight).copy()
    array[0, 0] += 0.05
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    onnx.save(model, path)


def open_with_wrong_tanh(path: Path, device: Device) -> Session:
    """Load a file in a runtime that computes the seventh Tanh as a Softsign."""
    model = onnx.load(path)
    # In a part of the file it is also the seventh, or missing.
    nodes = [node for node in model.graph.node if node.op_type == "Tanh"]
    if len(nodes) >= 7:
        nodes[6].op_type = "Softsign"
    wrong = path.with_name(f"{path.stem}.wrong.onnx")
    onnx.save(model, wrong)
    try:
        return open_session(wrong, device)
    finally:
        wrong.unlink()


def open_with_wrong_cpu(path: Path, device: Device, *_: object) -> Session:
    return (
        open_with_wrong_tanh(path, device)
        if device.runtime == "onnxruntime"
        else open_session(path, device)
    )


def open_with_wrong_optimizer(path: Path, device: Device, *_: object) -> Session:
    is_right = "graph_optimization_level" in device.session_options
    return open_session(path, device) if is_right else open_with_wrong_cpu(path, device)


@pytest.fixture
def wrong_runtime(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Replace ONNX Runtime with optimization by the wrong runtime."""
    monkeypatch.setattr(prove, "open_session", open_with_wrong_optimizer)
    monkeypatch.setattr(blame, "open_session", open_with_wrong_optimizer)
    return lambda: monkeypatch.setattr(blame, "open_session", open_with_wrong_cpu)


def test_culprit_of_a_traced_constant_is_the_exporter(tmp_path: Path) -> None:
    record = check_export(case_of(wrong_contract("Scaled"), 13, dynamo=False), tmp_path)
    result = blame_of(record)
    assert record.status is Status.FAIL
    assert (result.culprit, result.sample) == (Culprit.EXPORTER, "batch=7")
    assert result.first is not None
    assert result.first.output == "/middle/Add_output_0"
    assert result.first.source == line_with("x.detach().abs().max()) + 0.5")
    assert result.first.error_before < 1e-6
    assert result.first.error_after > 1e-2
    assert "onnx.reference: wrong, over 1e5 times the bound" in result.evidence
    assert "cpu and onnx.reference agree with each other" in result.evidence
    assert result.evidence[-2].startswith(
        "on the declared inputs: right; the file contains constants"
    )
    assert result.allowed[0].exact
    assert not list(tmp_path.glob(".*")), "scratch files are left"


@pytest.mark.filterwarnings("ignore")  # torch.ao.quantization is deprecated
def test_diagnosis_of_a_quantized_model_is_complete(tmp_path: Path) -> None:
    spec = wrong_contract("build_quantized")
    result = blame_of(check_export(case_of(spec, 13, dynamo=False), tmp_path))
    assert not any("the diagnosis failed" in line for line in result.evidence)
    assert result.first is not None
    assert result.first.source == line_with("x.detach().abs().max()) + 0.5")


def test_culprit_of_shapes_that_onnx_excludes_is_the_exporter(tmp_path: Path) -> None:
    spec = wrong_contract(
        "Rotated",
        inputs=(declare_input("x", "batch", 2, "length", 8),),
        outputs=(declare_output("y", "batch", 2, "length", 8),),
        axes=(Axis(name="batch", example=3), Axis(name="length", example=5)),
    )
    result = blame_of(check_export(case_of(spec, 23, dynamo=True), tmp_path))
    assert result.culprit is Culprit.EXPORTER
    assert "onnx.reference: right" in result.evidence
    assert result.evidence[-1].startswith("RotaryEmbedding: ONNX documents `cos_cache` as ")
    assert result.first is not None
    assert result.first.operator == "RotaryEmbedding"


def test_folded_batchnorm_is_not_the_first_divergence(tmp_path: Path) -> None:
    spec = wrong_contract(
        "Fused",
        inputs=(declare_input("x", "batch", 2, 4, 4),),
        outputs=(declare_output("y", "batch", 3, 4, 4),),
    )
    result = blame_of(check_export(case_of(spec, 13, dynamo=False), tmp_path))
    assert result.first is not None
    assert result.first.node == "/middle/Add"
    assert result.first.error_before < 1e-5


def test_culprit_of_a_damaged_file_is_the_file(tmp_path: Path) -> None:
    case = case_of(wrong_contract("Chain"), 18, dynamo=True)
    result = blame_of(check_export(case, tmp_path, damage=damage_weight))
    assert result.culprit is Culprit.FILE
    assert "the same export again: right" in result.evidence
    assert result.first is not None
    assert (result.first.node, result.first.operator) == ("node_linear_5", "Gemm")
    assert result.first.source == line_with("x = torch.tanh(layer(x))")
    assert result.first.error_before < 1e-6 < result.first.error_after


@pytest.mark.usefixtures("wrong_runtime")
def test_culprit_is_the_optimizer_if_the_file_is_right_without(tmp_path: Path) -> None:
    result = blame_of(check_export(case_of(wrong_contract("Chain"), 18, dynamo=True), tmp_path))
    assert result.culprit is Culprit.OPTIMIZER
    assert result.evidence[-1] == "ONNX Runtime without optimization: right"
    assert result.first is not None
    assert (result.first.node, result.first.operator) == ("node_tanh_6", "Tanh")
    assert result.first.against == "ONNX Runtime without optimization"
    assert result.first.source == line_with("x = torch.tanh(layer(x))")
    assert result.first.error_before == 0


def test_culprit_of_a_wrong_fusion_is_the_optimizer_of_the_exporter(tmp_path: Path) -> None:
    trap = next(trap for trap in FUSIONS if not trap.is_sound)
    record = make_record(trap, tmp_path / "trap", diagnose=True)
    assert blame_of(record).culprit is Culprit.EXPORTER_OPTIMIZER
    assert record.advice == ("options.optimize = false: its file passes all checks",)


def test_culprit_is_the_kernel_if_the_reference_is_right(
    wrong_runtime: Callable[[], None], tmp_path: Path
) -> None:
    wrong_runtime()
    result = blame_of(check_export(case_of(wrong_contract("Chain"), 13, dynamo=False), tmp_path))
    assert result.culprit is Culprit.KERNEL
    assert result.evidence[-1] == "onnx.reference: right"
    assert result.first is not None
    assert (result.first.node, result.first.against) == ("/Tanh_6", "onnx.reference")


def test_culprit_of_a_bound_below_rounding_is_precision(tmp_path: Path) -> None:
    spec = wrong_contract("Chain", tolerance=Tolerance(atol=1e-9))
    result = blame_of(check_export(case_of(spec, 13, dynamo=False), tmp_path))
    assert result.culprit is Culprit.PRECISION
    assert result.first is None
    assert result.evidence[-1].startswith("compared with float64, the file differs by up to 1e-")


def test_culprit_of_sizes_that_pytorch_rejects_is_the_contract(tmp_path: Path) -> None:
    spec = wrong_contract("Large", source="nets.py:LimitedBatch")
    result = blame_of(check_export(case_of(spec, 18, dynamo=True), tmp_path))
    assert result.culprit is Culprit.CONTRACT
    assert "at most 5 rows" in result.evidence[0]
    spec = wrong_contract("Restless", source="nets.py:RandomOutput")
    record = check_export(case_of(spec, 18, dynamo=True), tmp_path / "random")
    assert record.check == "determinism"
    assert blame_of(record).culprit is Culprit.MODEL


def test_wrong_capture_has_no_first_node(tmp_path: Path) -> None:
    spec = wrong_contract("Short", cases=(Case(name="long", axes={"batch": 600}),))
    record = check_export(case_of(spec, 18, dynamo=True), tmp_path)
    result = blame_of(record)
    assert result.culprit is Culprit.EXPORTER
    assert not any("without its optimizer" in line for line in result.evidence)
    assert result.first is None
    assert "the program that torch.export captured is wrong too" in result.evidence
    assert record.advice[0].startswith('exporter = "torchscript" and capture = "script": ')


def test_green_cell_is_not_diagnosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("diagnosed")

    monkeypatch.setattr(explanation, "analyze_fault", refuse)
    record = check_export(case_of(wrong_contract("Chain"), 13, dynamo=False), tmp_path)
    assert record.status is Status.PASS
    assert record.blame is None


def test_runtime_that_rejects_the_file_is_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, device: Device, *_: object) -> Session:
        if device.runtime == "reference":
            raise LoadFailure("no such operator")
        return open_session(path, device)

    monkeypatch.setattr(blame, "open_session", refuse)
    result = blame_of(check_export(case_of(wrong_contract("Scaled"), 13, dynamo=False), tmp_path))
    assert result.culprit is Culprit.EXPORTER  # another export is right
    assert "onnx.reference: no result: no such operator" in result.evidence


def test_diagnosis_of_all_cells_takes_a_quarter_of_the_time() -> None:
    spec = wrong_contract("Chain", timeout=600.0)
    assert diagnosis_seconds(spec, 2) == 30.0
    assert diagnosis_seconds(spec, 50) * 50 == pytest.approx(150.0)
