"""`exporter doctor` reports on a real environment, and on an environment without torch."""

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


def test_a_valid_environment_has_no_problem_and_a_short_report(project: Path) -> None:
    command = run_exporter(project, "doctor")
    assert command.returncode == 0, command.stdout + command.stderr
    lines = command.stdout.splitlines()
    assert len(lines) < 25
    assert lines[-1].startswith("0 problems, ")
    text = " ".join(command.stdout.split())
    assert "ok device cpu CPUExecutionProvider works" in text
    assert "ok device reference onnx.reference works" in text
    assert "ok workers the fork server has torch imported" in text
    assert "one capture serves all opsets" in text
    assert "ok manifests 1 model, 6 cells" in text
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        problem = "2 cells unavailable: this ONNX Runtime has no CUDAExecutionProvider"
        assert f"note device cuda {problem}" in text


def test_a_torch_that_cannot_be_imported_is_a_problem(project: Path, tmp_path: Path) -> None:
    """PYTHONPATH has a broken torch before the installed torch."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise ImportError('libcudart.so.12 is missing')\n")
    command = run_exporter(project, "doctor", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert command.returncode == 1
    assert "cannot be imported: ImportError: libcudart.so.12 is missing" in command.stdout
    assert "fork server" not in command.stdout
    assert "ok       device cpu" in command.stdout, "a file can be checked without torch"
    assert "Traceback" not in command.stdout + command.stderr


def test_the_json_output_has_the_problem_of_a_manifest(tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", good="Good")
    (root / "manifests/tiny.toml").write_text("format = 2\n")
    command = run_exporter(root, "doctor", "--json")
    assert command.returncode == 1
    findings = {each["subject"]: each for each in json.loads(command.stdout)["findings"]}
    assert findings["torch"]["level"] == "ok"
    manifests = findings["manifests"]
    assert manifests["level"] == "problem"
    assert manifests["message"].startswith("manifests/tiny.toml:1: format")
