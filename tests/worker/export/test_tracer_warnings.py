"""Notes of tracer warnings have the model's line and a count."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from exporter.worker.export.convert import convert_module
from exporter.worker.export.exporter_warnings import collect_tracer_warnings
from exporter.worker.inputs.input_sets import choose_usual_sets
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.model.source_loader import load_model
from tests.worker.contracts import ROOT, declare_output, make_contract


def test_note_has_line_of_the_model_and_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # the worker runs in the project's root
    spec = make_contract("ValueBranches", outputs=(declare_output("y", "batch", 4),))
    inputs = draw_inputs(spec, choose_usual_sets(spec)[0], ROOT)
    model = load_model(spec, ROOT)
    _, notes = convert_module(model, spec, inputs, 13, tmp_path / "a.onnx")
    lines = (ROOT / "tests/worker/nets.py").read_text(encoding="utf-8").splitlines()
    number = next(n for n, line in enumerate(lines, 1) if "if x.sum() > 0" in line)
    tracer_notes = [note for note in notes if note.startswith("tracer warning: ")]
    assert len(tracer_notes) == 1
    assert tracer_notes[0].startswith(
        f"tracer warning: tests/worker/nets.py:{number}: Converting a tensor"
    )
    assert tracer_notes[0].endswith("(2 times)")


def test_other_warnings_are_only_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    with collect_tracer_warnings(ROOT) as notes:
        warnings.warn("something else", UserWarning, stacklevel=1)
    assert notes == []
    assert "something else" in capsys.readouterr().err
