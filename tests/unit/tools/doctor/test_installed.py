"""What is said of Python, of packages and of workers."""

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
    examine_installed,
    examine_warm_workers,
    installed,
)
from exporter.tools.doctor import client as asking
from exporter.tools.doctor.client import ask
from exporter.tools.doctor.installed import (
    FLOORS,
    OPTIONAL,
    PYTHON,
    is_older,
)
from exporter.tools.doctor.protocol import ProbeResponse, Question

ROOT = Path(__file__).parents[4]
VERSIONS = {
    "torch": "2.13.0+cpu",
    "onnx": "1.23.2",
    "onnxscript": "0.7.2",
    "onnxruntime": "1.31.1",
    "numpy": "2.4.6",
    "safetensors": "0.8.0",
}
GOOD = ProbeResponse(
    imported={name: version for name, version in VERSIONS.items() if name != "safetensors"},
    is_known_torch=True,
    known_torch=("2.13",),
    providers=("CUDAExecutionProvider", "CPUExecutionProvider"),
)


def examined(
    monkeypatch: pytest.MonkeyPatch, answer: ProbeResponse, versions: Mapping[str, str] = VERSIONS
) -> dict[str, Diagnosis]:
    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(installed, "ask", lambda question, environment: answer)
    monkeypatch.setattr(installed, "version", version)
    return {finding.about: finding for finding in examine_installed({})}


def test_the_floors_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = project["optional-dependencies"]
    assert {f"{name}>={floor}" for name, floor in FLOORS.items()} == set(said["export"])
    assert [f"{name}>={floor}" for name, (floor, _) in OPTIONAL.items()] == said["openvino"]
    assert project["requires-python"] == f">={PYTHON}"


@pytest.mark.parametrize(
    ("found", "floor", "older"),
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
def test_versions_are_compared_number_by_number(found: str, floor: str, older: bool) -> None:
    assert is_older(found, floor) is older


def test_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examined(monkeypatch, GOOD)
    assert {finding.level for finding in found.values()} == {Level.OK}
    assert list(found) == ["python", *FLOORS, *OPTIONAL]
    assert found["torch"].said == "2.13.0+cpu: one capture serves all opsets"
    assert found["onnxruntime"].said == "1.31.1 with CUDAExecutionProvider, CPUExecutionProvider"
    assert found["openvino"].said == "not installed: only the device openvino needs it"


def test_a_torch_that_is_not_known_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = GOOD.model_copy(
        update={"is_known_torch": False, "imported": {**GOOD.imported, "torch": "2.14.0"}}
    )
    torch = examined(monkeypatch, answer)["torch"]
    assert torch.level is Level.NOTE
    assert torch.said.startswith("2.14.0 is not 2.13, which is known here")
    assert torch.said.endswith("slower")


def test_what_is_missing_old_or_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {**VERSIONS, "onnx": "1.20.0", "openvino": "2023.1"}
    del versions["safetensors"]
    imported = {**GOOD.imported, "onnx": "1.20.0"}
    del imported["onnxscript"]
    failed = {"onnxscript": "ImportError: libonnx.so"}
    answer = GOOD.model_copy(update={"imported": imported, "failed": failed})
    found = examined(monkeypatch, answer, versions)
    said = {name: f.said for name, f in found.items() if f.level is Level.PROBLEM}
    assert said == {
        "onnx": "1.20.0 is too old: 1.21 or later is needed",
        "onnxscript": "0.7.2 cannot be imported: ImportError: libonnx.so",
        "safetensors": (
            "not installed: an export needs `pip install 'onnx-exporter-matrix[export]'`"
        ),
        "openvino": "2023.1 is too old: 2024.6 or later is needed",
    }


def test_an_old_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.python_version", lambda: "3.10.4")
    python = examined(monkeypatch, GOOD)["python"]
    assert python.level is Level.PROBLEM
    assert "3.11 or later is needed" in python.said


def test_where_the_process_dies_versions_are_still_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examined(monkeypatch, ProbeResponse(problem="its process died of SIGSEGV"))
    assert found["packages"].level is Level.PROBLEM
    assert found["packages"].said == "its process died of SIGSEGV"
    assert found["torch"].said == "2.13.0+cpu"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import os; os.abort()", "its process died of SIGABRT"),
        (
            "print('no such library'); raise SystemExit(3)",
            "its process ended with 3: no such library",
        ),
        ("import time; time.sleep(60)", "its process was not done after 1 s"),
        ("import sys; open(sys.argv[2], 'w').write('{')", "its process ended with 0"),
        ("import sys; open(sys.argv[2], 'w').write('{\"ran_on\": \"it\"}')", ""),
    ],
)
def test_whatever_becomes_of_the_process_is_an_answer(
    monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    monkeypatch.setattr(asking, "_COMMAND", (sys.executable, "-c", program))
    monkeypatch.setattr(asking, "_PATIENCE", 1.0 if "sleep" in program else 60.0)
    answer = ask(Question(), {})
    assert answer.problem == said
    assert answer.ran_on == ("" if said else "it")


class Nursery:
    """A `ForkServerStarter` of which only whether it is one is asked."""

    def __init__(self, is_warm: bool) -> None:
        self._is_warm = is_warm
        self.is_closed = False

    def is_warm(self) -> bool:
        return self._is_warm

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("system", "is_warm", "level"),
    [("linux", True, Level.OK), ("linux", False, Level.PROBLEM), ("darwin", True, Level.NOTE)],
)
def test_how_workers_start(
    monkeypatch: pytest.MonkeyPatch, system: str, is_warm: bool, level: Level
) -> None:
    nursery = Nursery(is_warm)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(installed, "ForkServerStarter", lambda environment: nursery)
    assert examine_warm_workers({}).level is level
    assert nursery.is_closed is (system == "linux")
