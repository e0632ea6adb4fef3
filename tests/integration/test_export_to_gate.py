"""A user exports, accepts and gates models, from the first export to a blocked change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from exporter.records.record import RunRecord
from tests.integration.project import run_exporter


@pytest.fixture(scope="module")
def accepted(good: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with one model and its accepted results."""
    root = Path(shutil.copytree(good, tmp_path_factory.mktemp("workflow") / "project"))
    for arguments in (["export"], ["baseline"], ["gate"]):
        run_exporter(root, *arguments, code=0)
    return root


def test_a_file_that_changed_after_its_proof_is_a_finding(accepted: Path) -> None:
    assert run_exporter(accepted, "export").returncode == 0
    path = accepted / "build/good/17.onnx"
    content = path.read_bytes()
    try:
        path.write_bytes(content + b"\0")
        for command, code in (("gate", 1), ("check", 1), ("report", 0)):
            process = run_exporter(accepted, command, code=code)
            message = "good/17.onnx is not the file that was proved"
            assert message in process.stdout + process.stderr, command
        path.unlink()  # results may be read without files
        assert run_exporter(accepted, "gate").returncode == 0
    finally:
        path.write_bytes(content)
    assert run_exporter(accepted, "gate").returncode == 0


def test_an_unreadable_baseline_and_missing_results_have_their_exit_codes(good: Path) -> None:
    root = good
    (root / "build/results.json").unlink()
    assert run_exporter(root, "gate").returncode == 5
    assert run_exporter(root, "baseline").returncode == 5
    (root / "build/results.json").write_text(RunRecord(tools={}, records=()).to_json())
    assert run_exporter(root, "baseline").returncode == 1
    (root / "reports/baseline").mkdir(parents=True)
    (root / "reports/baseline/good.json").write_text("{")
    damaged = run_exporter(root, "gate", code=5)
    assert "reports/baseline/good.json: is not a baseline of format 4" in damaged.stderr
    assert "Traceback" not in damaged.stderr
    # An export needs no baseline: it prints a warning and writes the tables without one.
    (root / "reports/baseline/good.json").write_text("<<<<<<< HEAD\n")
    export = run_exporter(root, "export", code=0)
    warning = "reports/baseline/good.json: contains a merge conflict; resolve it"
    assert warning in export.stdout + export.stderr
    assert (root / "reports/COMPATIBILITY.md").is_file()
    report = run_exporter(root, "report")
    assert (report.returncode, warning in report.stderr) == (5, True)
    assert run_exporter(root, "baseline").returncode == 5
