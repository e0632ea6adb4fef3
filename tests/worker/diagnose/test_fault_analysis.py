"""Whose fault it is: each culprit by a file or a runtime that is wrong in a known way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper

from exporter.manifest import Axis, Device, Tolerance
from exporter.records.record import Culprit, Status
from exporter.runtimes import LoadFailure, Session, open_session
from exporter.worker.diagnose import fault_analysis as blame
from exporter.worker.diagnose.explanation import diagnosis_seconds
from exporter.worker.verify import run_checks as prove
from tests.worker.contracts import given, put_out
from tests.worker.diagnose.cases import CPU, blame_of, case_of, judged, wrong_contract

HERE = "tests/worker/diagnose/wrong_nets.py"


def line_with(text: str) -> str:
    """`wrong_nets.py:<line>` of the one line that holds the text."""
    lines = (Path(__file__).with_name("wrong_nets.py")).read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if text in line]
    return f"{HERE}:{number}"


def weight_off(path: Path) -> None:
    """One element of the sixth layer's weight, by 0.05."""
    model = onnx.load(path)
    (weight,) = [item for item in model.graph.initializer if item.name.endswith("5.weight")]
    array = numpy_helper.to_array(weight).copy()
    array[0, 0] += 0.05
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    onnx.save(model, path)


def wrong_tanh(path: Path, device: Device) -> Session:
    """A runtime that takes the seventh Tanh for a Softsign."""
    model = onnx.load(path)
    # In a part of the file it is still the seventh, or not there.
    nodes = [node for node in model.graph.node if node.op_type == "Tanh"]
    if len(nodes) >= 7:
        nodes[6].op_type = "Softsign"
    wrong = path.with_name(f"{path.stem}.wrong.onnx")
    onnx.save(model, wrong)
    try:
        return open_session(wrong, device)
    finally:
        wrong.unlink()


def only_cpu_is_wrong(path: Path, device: Device, *_: object) -> Session:
    return (
        wrong_tanh(path, device) if device.runtime == "onnxruntime" else open_session(path, device)
    )


@pytest.fixture
def wrong_runtime(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Puts the wrong runtime in the place of ONNX Runtime, optimised."""
    monkeypatch.setattr(prove, "open_session", only_cpu_is_wrong)
    monkeypatch.setattr(blame, "open_session", only_cpu_is_wrong)
    return lambda: monkeypatch.setattr(
        blame.FaultAnalysis, "_plainly", lambda self, path: only_cpu_is_wrong(path, CPU)
    )


def test_a_number_kept_by_the_trace_is_the_exporters_fault(tmp_path: Path) -> None:
    record = judged(case_of(wrong_contract("Scaled"), 13, dynamo=False), tmp_path)
    found = blame_of(record)
    assert record.status is Status.FAIL
    assert (found.culprit, found.sample) == (Culprit.EXPORTER, "batch=7")
    assert found.first is not None
    assert found.first.output == "/middle/Add_output_0"
    assert found.first.source == line_with("x.detach().abs().max()) + 0.5")
    assert found.first.error_before < 1e-6
    assert found.first.error_after > 1e-2
    assert "onnx.reference: wrong, over 1e5 times the bound" in found.evidence
    assert "cpu and onnx.reference agree with each other" in found.evidence
    assert found.evidence[-2].startswith("on the declared inputs: right: the model stores a value")
    assert found.allowed[0].exact
    assert not list(tmp_path.glob(".*")), "scratch files are left"


def test_the_other_exporter_is_asked_where_it_has_the_opset(tmp_path: Path) -> None:
    spec = wrong_contract("Scaled", exporter="torchscript")
    found = blame_of(judged(case_of(spec, 18, dynamo=False), tmp_path))
    assert found.culprit is Culprit.EXPORTER
    (said,) = [line for line in found.evidence if line.startswith("dynamo at the same opset: ")]
    assert "data-dependent" in said.lower() or "wrong" in said


def test_batchnorm_folded_into_a_conv_is_not_taken_for_the_fault(tmp_path: Path) -> None:
    spec = wrong_contract(
        "Fused",
        inputs=(given("x", "batch", 2, 4, 4),),
        outputs=(put_out("y", "batch", 3, 4, 4),),
    )
    found = blame_of(judged(case_of(spec, 13, dynamo=False), tmp_path))
    assert found.first is not None
    assert found.first.node == "/middle/Add"
    assert found.first.error_before < 1e-5


@pytest.mark.parametrize(
    ("opset", "dynamo", "node"),
    [
        (13, False, "/layers.5/Gemm"),
        (18, True, "node_linear_5"),
    ],
)
def test_a_damaged_file_is_told_from_a_wrong_export(
    opset: int, dynamo: bool, node: str, tmp_path: Path
) -> None:
    case = case_of(wrong_contract("Chain"), opset, dynamo=dynamo)
    found = blame_of(judged(case, tmp_path, damage=weight_off))
    assert found.culprit is Culprit.FILE
    assert "the same export again: right" in found.evidence
    assert found.first is not None
    assert (found.first.node, found.first.operator) == (node, "Gemm")
    assert found.first.source == line_with("x = torch.tanh(layer(x))")
    assert found.first.error_before < 1e-6 < found.first.error_after


@pytest.mark.usefixtures("wrong_runtime")
def test_the_optimiser_is_at_fault_where_it_is_right_without(tmp_path: Path) -> None:
    found = blame_of(judged(case_of(wrong_contract("Chain"), 18, dynamo=True), tmp_path))
    assert found.culprit is Culprit.OPTIMIZER
    assert found.evidence[-1] == "ONNX Runtime without optimization: right"
    assert found.first is not None
    assert (found.first.node, found.first.operator) == ("node_tanh_6", "Tanh")
    assert found.first.against == "ONNX Runtime without optimization"
    assert found.first.source == line_with("x = torch.tanh(layer(x))")
    assert found.first.error_before == 0


def test_a_kernel_is_at_fault_where_the_specification_is_right(
    wrong_runtime: Callable[[], None], tmp_path: Path
) -> None:
    wrong_runtime()
    found = blame_of(judged(case_of(wrong_contract("Chain"), 13, dynamo=False), tmp_path))
    assert found.culprit is Culprit.KERNEL
    assert found.evidence[-1] == "onnx.reference: right"
    assert found.first is not None
    assert (found.first.node, found.first.against) == ("/Tanh_6", "onnx.reference")


def test_a_bound_below_rounding_is_a_matter_of_precision(tmp_path: Path) -> None:
    spec = wrong_contract("Chain", tolerance=Tolerance(atol=1e-9))
    found = blame_of(judged(case_of(spec, 13, dynamo=False), tmp_path))
    assert found.culprit is Culprit.PRECISION
    assert found.first is None
    assert found.evidence[-1].startswith("against float64 the file is off by up to 1e-")


def test_sizes_that_pytorch_refuses_are_the_contracts_fault(tmp_path: Path) -> None:
    spec = wrong_contract("Large", source="nets.py:Large")
    found = blame_of(judged(case_of(spec, 18, dynamo=True), tmp_path))
    assert found.culprit is Culprit.CONTRACT
    assert "at most 5 rows" in found.evidence[0]


def test_a_model_that_differs_from_itself_is_the_models_fault(tmp_path: Path) -> None:
    spec = wrong_contract("Restless", source="nets.py:Restless")
    record = judged(case_of(spec, 18, dynamo=True), tmp_path)
    assert record.check == "determinism"
    assert blame_of(record).culprit is Culprit.MODEL


def test_a_capture_that_is_wrong_blames_no_node(tmp_path: Path) -> None:
    spec = wrong_contract("Short", axes=(Axis(name="batch", example=3, probe=(600,)),))
    record = judged(case_of(spec, 18, dynamo=True), tmp_path)
    found = blame_of(record)
    assert found.culprit is Culprit.EXPORTER
    assert found.first is None
    assert "the program that torch.export captured is wrong too" in found.evidence
    assert record.advice == (
        "axes.batch.max = 511: torch.export captured the model for no other sizes",
    )


def test_a_green_cell_is_not_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("examined")

    monkeypatch.setattr(blame.FaultAnalysis, "_examine", refuse)
    record = judged(case_of(wrong_contract("Chain"), 13, dynamo=False), tmp_path)
    assert record.status is Status.PASS
    assert record.blame is None


def test_what_was_found_stays_when_the_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forever(self: blame.FaultAnalysis, session: Session) -> bool:
        while True:
            pass

    monkeypatch.setattr(blame.FaultAnalysis, "_runtimes", forever)
    monkeypatch.setattr("tests.worker.diagnose.cases.PATIENCE", 1.0)
    found = blame_of(judged(case_of(wrong_contract("Scaled"), 13, dynamo=False), tmp_path))
    assert found.culprit is Culprit.UNKNOWN
    assert found.evidence[-1] == "ended after 1 s, before all was tried"


def test_a_runtime_that_refuses_the_file_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, device: Device, *_: object) -> Session:
        if device.runtime == "reference":
            raise LoadFailure("no such operator")
        return open_session(path, device)

    monkeypatch.setattr(blame, "open_session", refuse)
    found = blame_of(judged(case_of(wrong_contract("Scaled"), 13, dynamo=False), tmp_path))
    assert found.culprit is Culprit.UNKNOWN
    assert "onnx.reference: not asked: no such operator" in found.evidence


def test_all_cells_of_a_model_share_a_quarter_of_its_time() -> None:
    spec = wrong_contract("Chain", timeout=600.0)
    assert diagnosis_seconds(spec, 2) == 30.0
    assert diagnosis_seconds(spec, 50) * 50 == pytest.approx(150.0)


def test_a_model_that_breaks_its_own_contract_is_no_matter_of_precision(tmp_path: Path) -> None:
    found = blame_of(judged(case_of(wrong_contract("Three"), 17, dynamo=False), tmp_path))
    assert found.culprit is Culprit.CONTRACT
    assert "declared [batch, 4] with batch=7, PyTorch gives [3, 4]" in found.evidence[-1]
