"""`exporter doctor` on a real environment, and on one that lacks torch."""

from __future__ import annotations

import json
from pathlib import Path

import onnxruntime
import pytest

from tests.integration.project import ROOT, make_project, run_exporter

DEVICES = """
[tool.exporter]
default_devices = ["cpu", "cuda", "reference"]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_project(tmp_path_factory.mktemp("doctor") / "project", good="Good")
    (root / "pyproject.toml").write_text(DEVICES)
    return root


def test_one_screen_and_no_problem(project: Path) -> None:
    shown = run_exporter(project, "doctor")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    lines = shown.stdout.splitlines()
    assert len(lines) < 25
    assert lines[-1].startswith("0 problems, ")
    text = " ".join(shown.stdout.split())
    assert "ok device cpu CPUExecutionProvider works" in text
    assert "ok device reference onnx.reference works" in text
    assert "ok workers the fork server has torch imported" in text
    assert "one capture serves all opsets" in text


def test_the_same_as_json(project: Path) -> None:
    shown = run_exporter(project, "doctor", "--json")
    found = {each["subject"]: each for each in json.loads(shown.stdout)["findings"]}
    assert found["torch"]["level"] == "ok"
    assert found["manifests"] == {
        "level": "ok",
        "subject": "manifests",
        "message": "1 model, 6 cells",
    }
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        assert found["device cuda"]["level"] == "note"
        assert found["device cuda"]["message"].startswith(
            "2 cells unavailable: this ONNX Runtime has no CUDAExecutionProvider"
        )


def test_a_torch_that_cannot_be_imported(project: Path, tmp_path: Path) -> None:
    """On PYTHONPATH, before the one that is installed."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise ImportError('libcudart.so.12 is missing')\n")
    shown = run_exporter(project, "doctor", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert shown.returncode == 1
    assert "cannot be imported: ImportError: libcudart.so.12 is missing" in shown.stdout
    assert "fork server" not in shown.stdout
    assert "ok       device cpu" in shown.stdout, "a file can be checked without torch"
    assert "Traceback" not in shown.stdout + shown.stderr


def test_a_manifest_that_cannot_be_read(tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", good="Good")
    (root / "manifests/tiny.toml").write_text("format = 2\n")
    shown = run_exporter(root, "doctor")
    assert shown.returncode == 1
    assert "problem  manifests     manifests/tiny.toml:1: format" in shown.stdout
