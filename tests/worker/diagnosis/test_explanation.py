"""The culprit of a failure: the runtime, the file or the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from exporter.jobs import Sample
from exporter.manifest import Device, Fill, Input, ModelSpec, Output, Tolerance
from exporter.records.record import Culprit, Record, Stage
from exporter.worker.diagnosis.explanation import (
    blame_contract,
    blame_load_failure,
)
from exporter.worker.diagnosis.fault_analysis import explain_masked_rows
from exporter.worker.diagnosis.remedies import find_remedies
from exporter.worker.process.failure import Failure
from tests.traps import trap
from tests.traps.prove import export
from tests.unit.checks.contexts import (
    DOUBLE,
    Array,
    ConstantSession,
    contract,
    declared,
    make_reference,
    make_subject,
    write,
)
from tests.worker.contracts import ROOT, declare_output, make_contract
from tests.worker.diagnosis.cases import case_of, explain, write_export, wrong_contract

CPU = Device(name="cpu", runtime="onnxruntime")


@pytest.mark.parametrize(
    ("model", "culprit", "text"),
    [
        (DOUBLE, Culprit.RUNTIME, "onnx.reference: right"),
        (DOUBLE.replace("{2.0}", "{3.0}"), Culprit.EXPORTER, "times the bound"),
        (
            DOUBLE.replace('"" : 18', '"" : 18, "unknown" : 1').replace("Mul", "unknown.Mul"),
            Culprit.UNKNOWN,
            "rejects the file too",
        ),
    ],
)
def test_reference_evaluator_decides(
    model: str, culprit: Culprit, text: str, tmp_path: Path
) -> None:
    context = make_subject(tmp_path, model, reference=make_reference(declared(tmp_path)))
    blame = blame_load_failure(context, CPU)
    assert blame is not None
    assert blame.culprit is culprit
    assert text in blame.evidence[0]
    assert str(tmp_path) not in blame.evidence[0]


def test_no_blame_without_reference_evaluator_or_sample(tmp_path: Path) -> None:
    context = make_subject(tmp_path, reference=make_reference(declared(tmp_path)))
    assert blame_load_failure(context, Device(name="r", runtime="reference")) is None
    without_sample = make_subject(tmp_path, reference=make_reference())
    assert blame_load_failure(without_sample, CPU) is None


def test_the_contract_is_the_culprit_if_pytorch_rejects_a_size(tmp_path: Path) -> None:
    rejected = Sample(index=1, name="batch=7", kind="axis", axes={"batch": 7}, error="too large")
    accepted = make_subject(tmp_path, reference=make_reference(declared(tmp_path)))
    assert blame_contract(accepted) is None
    reference = make_reference(declared(tmp_path), rejected)
    blame = blame_contract(make_subject(tmp_path, reference=reference))
    assert blame is not None
    assert (blame.culprit, blame.sample) == (Culprit.CONTRACT, "batch=7")
    assert blame.evidence == ("PyTorch itself rejects this input set: too large",)


MASK = np.array([[0, 1, 1], [1, 1, 1]])
EMPTY_ROW = np.array([[0, 0, 0], [1, 1, 1]])
FILLS = ("ones", "mask", "bernoulli")
VALUES = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


def explain_masks(folder: Path, actual: Array, mask: Array = MASK, fill: str = "mask") -> str:
    rule = Fill.model_validate({"kind": fill})
    item = Input(name="m", shape=(2, 3), at="args[0]", dtype="int64", fill=rule)
    spec = contract(inputs=(item,), outputs=(Output(name="y", shape=(2, 3)),), axes=())
    sample = write(folder, 0, [mask], [VALUES])
    context = make_subject(folder, spec=spec, reference=make_reference(sample))
    return explain_masked_rows(context, "cpu", sample, ConstantSession(actual, names=("y",)))


def change(*index: int) -> Array:
    actual = VALUES.copy()
    actual[index] += 5
    return actual


@pytest.mark.parametrize(
    ("wrong", "mask", "fill", "parts"),
    [
        (
            (0, 0),
            MASK,
            "mask",
            (
                "right at all positions with 1 in 'm', wrong only at masked",
                "declare masked_by = 'm'",
            ),
        ),
        (
            (0, 0),
            1 - MASK,
            "padding",
            ("right at all positions with 0 in 'm'", 'fill = { padding = "right" }'),
        ),
        # a row without an allowed element
        ((0, 1), EMPTY_ROW, "ones", ("with 1 in 'm'",)),
        ((0, 1), 1 - EMPTY_ROW, "zeros", ("with 0 in 'm'",)),
        # wrong values elsewhere
        *(((1, 1), mask, fill, ()) for mask in (MASK, EMPTY_ROW) for fill in FILLS),
        # zeros in complete rows, random ones, and a mask that excludes everything
        ((0, 0), MASK, "ones", ()),
        ((0, 0), MASK, "bernoulli", ()),
        ((0, 0), np.zeros_like(MASK), "mask", ()),
    ],
)
def test_wrong_values_at_masked_positions_are_explained(
    wrong: tuple[int, int], mask: Array, fill: str, parts: tuple[str, ...], tmp_path: Path
) -> None:
    evidence = explain_masks(tmp_path, change(*wrong), mask=mask, fill=fill)
    assert all(part in evidence for part in parts)
    assert bool(evidence) is bool(parts)


@pytest.mark.parametrize(
    ("text", "is_number"),
    [
        ("RuntimeError: output 1 (7\n) of traced region did not depend on the inputs", True),
        ("AttributeError: 'int' object has no attribute 'name'", True),
        ("AttributeError: 'Node' object has no attribute 'name'", False),
    ],
)
def test_a_constant_number_as_an_output_is_a_known_cause(text: str, is_number: bool) -> None:
    case = case_of(make_contract("Affine"), 13, dynamo=False)
    fields = explain(Failure(Stage.CONVERT, text), case)
    assert ("Python number" in fields["message"]) == is_number


def run(spec: ModelSpec, folder: Path) -> Record:
    (record,) = export(spec, folder / "job", root=ROOT, diagnose=True)
    assert not list((folder / "job").glob(".again*"))
    return record


def by_size(net: str, opset: int) -> ModelSpec:
    return wrong_contract(net, opsets=(opset,))


@pytest.mark.parametrize(
    ("net", "opset", "advice"),
    [
        ("DoublesBySize", trap.DYNAMO, 'exporter = "torchscript": its file passes all checks at'),
        # A trace stores the example's choice.
        ("TriplesBySize", trap.DYNAMO, 'exporter = "torchscript" and capture = "script": its file'),
        ("DoublesBySize", 21, "no setting helps: "),  # TorchScript ends at opset 20
    ],
)
def test_only_an_exporter_that_keeps_the_promises_is_proposed(
    net: str, opset: int, advice: str, tmp_path: Path
) -> None:
    record = run(wrong_contract(net, opsets=(opset,)), tmp_path)
    assert record.stage is Stage.CAPTURE
    (line,) = record.advice
    assert line.startswith(advice)


def test_a_model_that_changes_its_weights_is_the_culprit(tmp_path: Path) -> None:
    outputs = (declare_output("y", "batch", 4, dtype="int64"),)
    record = run(wrong_contract("KeepsLargest", opsets=(13,), outputs=outputs), tmp_path)
    assert record.blame is not None, record.message
    assert record.blame.culprit is Culprit.MODEL, record.blame
    assert record.blame.evidence[-1].startswith("a call changes the parameter 'largest'")
    assert record.advice == ()


@pytest.mark.parametrize(
    ("opset", "bound", "advice"),
    [
        (23, 1e-3, "opset 22 (dynamo): its file passes all checks"),
        (23, 0.0, "no setting helps: "),  # the file of the lower opset is wrong, too
    ],
)
def test_a_lower_opset_is_proposed_if_it_avoids_the_newest_operator(
    opset: int, bound: float, advice: str, tmp_path: Path
) -> None:
    options = {"optimize": False}
    spec = wrong_contract("Attends", tolerance=Tolerance(atol=bound, rtol=bound), options=options)
    case = case_of(spec, opset, dynamo=True)
    (line, *_) = find_remedies(case, write_export(case, tmp_path))
    assert line.startswith(advice)
