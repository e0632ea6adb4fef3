"""Notes of tracer warnings and of the version converter."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import pytest

from exporter.checks.protocol import CheckedFile
from exporter.checks.structure_checks import check_opset
from exporter.jobs import JobFolder, Reference
from exporter.records.record import CheckResult, Status
from exporter.worker.export.convert import (
    collect_converter_warnings,
    collect_tracer_warnings,
)
from exporter.worker.export.write_onnx import write_artifact
from tests.worker.contracts import ROOT, make_contract
from tests.worker.graphs import convert, trace


def test_note_has_line_of_the_model_and_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # the worker runs in the project's root
    spec = make_contract("ValueBranches", "x [batch, 4] -> y [batch, 4]")
    _, notes = trace(spec, 13, tmp_path)
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


def exported(opset: int, folder: Path) -> CheckResult:
    spec = make_contract("Affine", exporter="dynamo", opsets=(opset,))
    job = JobFolder(folder)
    with collect_converter_warnings() as notes:
        write_artifact(convert(spec, opset, folder, dynamo=True), spec, opset, job, {})
    reference = Reference(samples=(), noise=(), output_spread=())
    return check_opset(
        CheckedFile(folder=job, opset=opset, spec=spec, reference=reference, notes=tuple(notes))
    )


def test_converted_file_has_requested_opset(tmp_path: Path) -> None:
    assert exported(13, tmp_path) == CheckResult(check="opset", status=Status.PASS)


def test_failed_conversion_names_the_operator(tmp_path: Path) -> None:
    result = exported(9, tmp_path)
    assert result.status is Status.FAIL
    assert result.message == (
        "the file has opset 18, expected 9: the version converter cannot convert Gemm from opset 13"
    )


@pytest.mark.parametrize(
    ("message", "note"),
    [
        (
            "/b/B.h:66: f: Assertion `false` failed: No Adapter From Version $14 for Div",
            "cannot convert Div from opset 14",
        ),
        (
            "/b/B.h:66: f: Assertion `false` failed: No Adapter To Version $17 for Pad",
            "cannot convert Pad to opset 17",
        ),
        (
            "/b/x.h:1: f: Assertion `false` failed: No Previous Version of Gelu exists",
            "cannot lower Gelu: lower opsets have no such operator",
        ),
        (
            "/b/axes_to.h:55: f: Assertion `hasAttribute(kaxes)` failed: No initializer",
            "fails in axes_to: No initializer",
        ),
        ("out of luck", "fails: out of luck"),
    ],
)
def test_messages_of_the_converter_are_translated(message: str, note: str) -> None:
    logger = logging.getLogger("onnxscript.version_converter")
    with collect_converter_warnings() as notes:
        for _ in range(2):
            logger.warning("Failed to convert the model", exc_info=RuntimeError(message))
        logger.warning("The model will be converted using the onnx C API")
    logger.warning("Failed afterwards", exc_info=RuntimeError(message))
    assert notes == [f"the version converter {note}"]


def test_skipped_node_is_noted() -> None:
    logger = logging.getLogger("onnxscript.version_converter")
    with collect_converter_warnings() as notes:
        message = "Skipping version conversion for node %s due to exception: %s"
        logger.warning(message, "GroupNormalization", "Missing required shape")
    assert notes == [
        "the version converter did not convert a node GroupNormalization: Missing required shape"
    ]
