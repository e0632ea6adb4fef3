"""Diagnoses of Python, of the packages and of the fork server."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from exporter.tools.doctor import (
    Diagnosis,
    Level,
    examinations,
    examine_fork_server,
    examine_packages,
)
from exporter.tools.doctor.examinations import (
    MINIMUM_PYTHON,
    MINIMUM_VERSIONS,
    OPTIONAL,
    ImportedPackages,
    is_older,
)

ROOT = Path(__file__).parents[4]
VERSIONS = {
    "torch": "2.13.0+cpu",
    "onnx": "1.23.2",
    "onnxscript": "0.7.2",
    "onnxruntime": "1.31.1",
    "numpy": "2.4.6",
    "safetensors": "0.8.0",
}
GOOD = ImportedPackages(
    versions={name: version for name, version in VERSIONS.items() if name != "safetensors"},
    is_known_torch=True,
    known_torch=("2.13",),
    providers=("CUDAExecutionProvider", "CPUExecutionProvider"),
)


def examine(
    monkeypatch: pytest.MonkeyPatch,
    response: ImportedPackages,
    versions: Mapping[str, str] = VERSIONS,
) -> dict[str, Diagnosis]:
    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(examinations, "call_in_child", lambda *_, **__: response)
    monkeypatch.setattr(examinations, "version", version)
    return {finding.subject: finding for finding in examine_packages({})}


def test_minimum_versions_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = project["optional-dependencies"]
    assert {f"{name}>={minimum}" for name, minimum in MINIMUM_VERSIONS.items()} == set(
        groups["export"]
    )
    assert [f"{name}>={minimum}" for name, (minimum, _) in OPTIONAL.items()] == groups["openvino"]
    assert project["requires-python"] == f">={MINIMUM_PYTHON}"


@pytest.mark.parametrize(
    ("installed", "minimum", "older"),
    [
        ("2.9.1", "2.10", True),
        ("2.10", "2.10", False),
        ("2.10.0+cpu", "2.10", False),
        ("2.13.0.dev2026", "2.10", False),
        ("0.4.2", "0.4.3", True),
        ("1.9", "1.20", True),
        ("strange", "0.1", True),
    ],
)
def test_versions_are_compared_number_by_number(installed: str, minimum: str, older: bool) -> None:
    assert is_older(installed, minimum) is older


def test_recent_packages_are_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    diagnoses = examine(monkeypatch, GOOD)
    assert {finding.level for finding in diagnoses.values()} == {Level.OK}
    assert list(diagnoses) == ["python", *MINIMUM_VERSIONS, *OPTIONAL]
    assert diagnoses["torch"].message == "2.13.0+cpu: one capture serves all opsets"
    assert (
        diagnoses["onnxruntime"].message
        == "1.31.1 with CUDAExecutionProvider, CPUExecutionProvider"
    )
    assert diagnoses["openvino"].message == "not installed: only the device openvino needs it"


def test_a_torch_that_is_not_known_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    response = GOOD.model_copy(
        update={"is_known_torch": False, "versions": {**GOOD.versions, "torch": "2.14.0"}}
    )
    torch = examine(monkeypatch, response)["torch"]
    assert torch.level is Level.NOTE
    assert torch.message.startswith("2.14.0 is not 2.13: ")
    assert torch.message.endswith("slower")


def test_missing_old_and_broken_packages_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {**VERSIONS, "onnx": "1.20.0", "openvino": "2023.1"}
    del versions["safetensors"]
    importable = {**GOOD.versions, "onnx": "1.20.0"}
    del importable["onnxscript"]
    errors = {"onnxscript": "ImportError: libonnx.so"}
    response = GOOD.model_copy(update={"versions": importable, "import_errors": errors})
    diagnoses = examine(monkeypatch, response, versions)
    problems = {name: f.message for name, f in diagnoses.items() if f.level is Level.PROBLEM}
    assert problems == {
        "onnx": "1.20.0 is too old: 1.21 or later is needed",
        "onnxscript": "0.7.2 cannot be imported: ImportError: libonnx.so",
        "safetensors": (
            "not installed: an export needs `pip install 'onnx-exporter-matrix[export]'`"
        ),
        "openvino": "2023.1 is too old: 2024.6 or later is needed",
    }


def test_an_old_python_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.python_version", lambda: "3.10.4")
    python = examine(monkeypatch, GOOD)["python"]
    assert python.level is Level.PROBLEM
    assert "3.11 or later is needed" in python.message


def test_versions_are_reported_if_the_process_crashes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "stub_probe.py").write_text("import os; os.abort()")
    monkeypatch.setattr(examinations, "_CHILD", "stub_probe")
    monkeypatch.setattr(examinations, "version", lambda name: VERSIONS.get(name, "2026.4"))
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    diagnoses = {finding.subject: finding for finding in examine_packages(environment)}
    assert diagnoses["packages"].level is Level.PROBLEM
    assert diagnoses["packages"].message == "its process was terminated by SIGABRT"
    assert diagnoses["torch"].message == "2.13.0+cpu"


class StubStarter:
    """A `ForkServerStarter` that starts nothing."""

    def __init__(self, is_available: bool) -> None:
        self._is_available = is_available
        self.is_closed = False

    def is_available(self) -> bool:
        return self._is_available

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("system", "is_available", "level"),
    [("linux", True, Level.OK), ("linux", False, Level.PROBLEM), ("darwin", True, Level.NOTE)],
)
def test_the_fork_server_is_examined_on_linux(
    monkeypatch: pytest.MonkeyPatch, system: str, is_available: bool, level: Level
) -> None:
    starter = StubStarter(is_available)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(examinations, "ForkServerStarter", lambda environment: starter)
    assert examine_fork_server({}).level is level
    assert starter.is_closed is (system == "linux")
