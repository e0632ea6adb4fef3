"""The process of a diagnosis: its end changes no verdict, and a foreseen failure needs none."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.manifest import Expectation, ModelSpec
from exporter.records.record import Culprit, Record, Status
from exporter.worker.process import fork_call
from tests.traps.prove import export
from tests.worker.contracts import ROOT
from tests.worker.diagnosis.cases import wrong_contract


def run(spec: ModelSpec, folder: Path) -> Record:
    (record,) = export(spec, folder / "job", root=ROOT, diagnose=True)
    assert not (folder / "job" / ".again").exists()
    return record


@pytest.mark.parametrize(
    ("end", "notes"),
    [
        ("abort", ("the diagnosis was terminated by SIGABRT",)),
        ("hang", ("the diagnosis was stopped after 4 s",)),
        ("none", ()),
    ],
)
def test_the_end_of_a_diagnosis_changes_no_verdict(
    end: str, notes: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests of this process may leave threads, or use an accelerator.
    monkeypatch.setattr(fork_call, "can_fork", lambda: True)
    monkeypatch.setattr(fork_call, "uses_accelerator", lambda: False)
    spec = wrong_contract("EndsInDiagnosis", opsets=(13,), init={"end": end}, timeout=16.0)
    record = run(spec, tmp_path)
    assert (record.status, record.check) == (Status.FAIL, "axes")
    assert tuple(note for note in record.notes if "the diagnosis" in note) == notes
    # The results before the end are kept.
    assert record.blame is not None
    assert record.blame.culprit is (Culprit.TRACE if end == "none" else Culprit.EXPORTER)
    assert "cpu and onnx.reference agree with each other" in record.blame.evidence
    is_complete = record.blame.evidence[-1].startswith("the same export again")
    assert is_complete is (end == "none")


AXES = Expectation(stage="parity", checks=("axes", "values"), reason="a constant of the example")
CAPTURE = Expectation(stage="capture", reason="a constant size")


@pytest.mark.parametrize(
    ("net", "opset", "foreseen"), [("Scaled", 13, AXES), ("DoublesBySize", 18, CAPTURE)]
)
def test_a_foreseen_failure_has_no_experiment(
    net: str, opset: int, foreseen: Expectation, tmp_path: Path
) -> None:
    spec = wrong_contract(net, opsets=(opset,))
    other = foreseen.model_copy(update={"match": "another text"})
    full = run(spec.model_copy(update={"expect": (other,)}), tmp_path / "other")
    assert not full.undiagnosed
    assert full.advice
    short = run(spec.model_copy(update={"expect": (foreseen,)}), tmp_path / "foreseen")
    assert short.undiagnosed
    assert (short.blame, short.advice) == (None, ())
    assert short.message in full.message


def test_a_thorough_proof_diagnoses_a_foreseen_failure(tmp_path: Path) -> None:
    spec = wrong_contract("Scaled", opsets=(13,), expect=(AXES,), thorough=True)
    record = run(spec, tmp_path)
    assert not record.undiagnosed
    assert record.blame is not None
