"""The culprit of a failed load is the runtime or the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.jobs import Sample
from exporter.manifest import Device
from exporter.records.record import Culprit
from exporter.worker.diagnose.explanation import blame_contract, blame_load_failure
from tests.unit.checks.contexts import (
    DOUBLE,
    declared,
    make_reference,
    make_subject,
)

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
    blame = blame_load_failure(context, CPU, 30.0)
    assert blame is not None
    assert blame.culprit is culprit
    assert text in blame.evidence[0]
    assert str(tmp_path) not in blame.evidence[0]


def test_no_blame_without_reference_evaluator_or_sample(tmp_path: Path) -> None:
    context = make_subject(tmp_path, reference=make_reference(declared(tmp_path)))
    assert blame_load_failure(context, Device(name="r", runtime="reference"), 30.0) is None
    without_sample = make_subject(tmp_path, reference=make_reference())
    assert blame_load_failure(without_sample, CPU, 30.0) is None


def test_the_contract_is_the_culprit_if_pytorch_rejects_a_size(tmp_path: Path) -> None:
    rejected = Sample(index=1, name="batch=7", kind="axis", axes={"batch": 7}, error="too large")
    accepted = make_subject(tmp_path, reference=make_reference(declared(tmp_path)))
    assert blame_contract(accepted) is None
    reference = make_reference(declared(tmp_path), rejected)
    blame = blame_contract(make_subject(tmp_path, reference=reference))
    assert blame is not None
    assert (blame.culprit, blame.sample) == (Culprit.CONTRACT, "batch=7")
    assert blame.evidence == ("PyTorch itself rejects this input set: too large",)
