"""The command `doctor` reports each problem of the installation and of the project."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from exporter.commands.doctor import doctor
from exporter.commands.doctor.doctor import (
    MINIMUM_PYTHON,
    MINIMUM_VERSIONS,
    OPTIONAL,
    Diagnosis,
    ImportedPackages,
    Level,
    examine_build,
    examine_devices,
    examine_fork_server,
    examine_machine,
    examine_packages,
    examine_project,
    examine_store,
    is_older,
)
from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Device, Manifest
from exporter.manifest.syntax import silent_faults
from exporter.manifest.syntax.silent_faults import SilentFault
from exporter.records.record import Status, read_run
from exporter.store import Store, StoreLimits
from exporter.store.store_files import LocalFiles
from tests.unit.manifest.projects import ENTRY, make_project
from tests.unit.pipeline.builders import FakeEngine, export, finish, manifest, spec
from tests.unit.pipeline.test_build import prove_shortly

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

    monkeypatch.setattr(doctor, "call_in_child", lambda *_, **__: response)
    monkeypatch.setattr(doctor, "version", version)
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


def test_a_release_with_a_silent_fault_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {**GOOD.versions, "onnxscript": "0.7.0"}
    found = examine(monkeypatch, GOOD.model_copy(update={"versions": versions}))["onnxscript"]
    assert found.level is Level.PROBLEM
    fault = "onnxscript 0.7.0 writes wrong files of `nn.GRU` by dynamo without an error"
    assert found.message.endswith(f"; {fault}; install 'onnxscript>=0.7.1'")


def test_a_release_with_a_silent_fault_that_is_not_too_old_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault = SilentFault("onnx", ">=1.23,<1.24", "writes another x", "1.24")
    monkeypatch.setattr(silent_faults, "SILENT_FAULTS", (fault,))
    response = GOOD.model_copy(update={"versions": {**GOOD.versions, "onnx": "1.23.0"}})
    found = examine(monkeypatch, response)["onnx"]
    message = "onnx 1.23.0 writes another x without an error; install 'onnx>=1.24'"
    assert (found.level, found.message) == (Level.PROBLEM, message)


@pytest.mark.parametrize(
    ("installed", "count"), [("0.6.2", 1), ("0.7.0", 1), ("0.7.1", 0), ("0.10.0", 0), ("", 0)]
)
def test_a_silent_fault_has_a_range_of_releases(installed: str, count: int) -> None:
    assert len([*silent_faults.list_silent_faults({"onnxscript": installed})]) == count


def test_the_oldest_releases_have_no_known_silent_fault() -> None:
    assert not [*silent_faults.list_silent_faults(MINIMUM_VERSIONS)]


def test_a_torch_that_is_not_known_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    response = GOOD.model_copy(
        update={"is_known_torch": False, "versions": {**GOOD.versions, "torch": "2.14.0"}}
    )
    torch = examine(monkeypatch, response)["torch"]
    assert torch.level is Level.NOTE
    assert torch.message.startswith("2.14.0 is not 2.13: ")
    assert torch.message.endswith("slower")


def test_missing_old_and_broken_packages_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.core.text.find_origin", lambda: ("", ""))
    versions = {**VERSIONS, "onnx": "1.20.0", "openvino": "2023.1", "torchvision": "0.27.0"}
    del versions["safetensors"]
    importable = {**GOOD.versions, "onnx": "1.20.0"}
    del importable["onnxscript"]
    errors = {
        "onnxscript": "ImportError: libonnx.so",
        "torchvision": "RuntimeError: operator torchvision::nms does not exist",
    }
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
        "torchvision": (
            "0.27.0 cannot be imported: RuntimeError: operator torchvision::nms does not exist "
            "beside torch 2.13.0+cpu; install both from one index"
        ),
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
    monkeypatch.setattr(doctor, "_CHILD", "stub_probe")
    monkeypatch.setattr(doctor, "version", lambda name: VERSIONS.get(name, "2026.4"))
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    diagnoses = {finding.subject: finding for finding in examine_packages(environment)}
    assert diagnoses["packages"].level is Level.PROBLEM
    assert diagnoses["packages"].message == "its process was terminated by SIGABRT"
    assert diagnoses["torch"].message == "2.13.0+cpu"


class StubStarter:
    def __init__(self, is_available: bool) -> None:
        self._is_available = is_available
        self.is_closed = False

    def is_available(self) -> bool:
        return self._is_available

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("is_linux", "is_available", "level"),
    [(True, True, Level.OK), (True, False, Level.PROBLEM), (False, True, Level.NOTE)],
)
def test_the_fork_server_is_examined_on_linux(
    monkeypatch: pytest.MonkeyPatch, is_linux: bool, is_available: bool, level: Level
) -> None:
    starter = StubStarter(is_available)
    monkeypatch.setattr(doctor, "IS_LINUX", is_linux)
    monkeypatch.setattr(doctor, "ForkServerStarter", lambda environment: starter)
    finding = examine_fork_server({})
    assert finding.level is level
    assert ("reads by native code" in finding.message) is not is_linux
    assert starter.is_closed is is_linux


LIMITS = StoreLimits(size=5 << 30, age=3600)


def group_by_level(findings: list[Diagnosis]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for finding in findings:
        groups.setdefault(finding.level, []).append(f"{finding.subject}: {finding.message}")
    return groups


def test_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = group_by_level(list(examine_machine(tmp_path, 3, {})))
    assert "3 parallel jobs" in result["ok"][0]
    [git] = result["note"]
    assert git.startswith("git: the project is not in a repository with a commit: `gate --against`")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(doctor.os, "sysconf", lambda name: 1 << 15)
    result = group_by_level(list(examine_machine(tmp_path, 1, {})))
    assert [line.split(":")[0] for line in result["note"]] == ["machine", "disk", "git"]
    assert "large models may run out of memory" in result["note"][0]
    assert result["note"][2].startswith("git: not installed")


def test_manifests(tmp_path: Path) -> None:
    root = make_project(
        tmp_path / "good", {"manifests/net.toml": f"format = 1\n[models.net]\n{ENTRY}"}
    )
    read, finding = examine_project(root)
    assert read is not None
    assert finding.level is Level.OK
    assert finding.message.startswith("1 model, ")
    broken = make_project(
        tmp_path / "broken",
        {"manifests/net.toml": f"format = 1\nx = 1\ny = 2\n[models.net]\n{ENTRY}"},
    )
    read, finding = examine_project(broken)
    assert read is not None, "its devices are examined"
    assert finding.level is Level.PROBLEM
    assert finding.message.startswith("manifests/net.toml:2: x: ")
    assert finding.message.endswith("(and 1 more: `exporter check` lists them)")
    (tmp_path / "none").mkdir()
    read, finding = examine_project(tmp_path / "none")
    assert finding.level is Level.NOTE, "the guide runs `doctor` before the first entry"
    assert "`exporter record -- python export.py` writes entries" in finding.message
    for settings in ("[tool.exporter]\n", "[tool.exporter]\nmanifests = 'onnx'\n", "[tool"):
        (tmp_path / "none/pyproject.toml").write_text(settings)
        assert examine_project(tmp_path / "none")[1].level is Level.PROBLEM
    (tmp_path / "none/pyproject.toml").unlink()
    (tmp_path / "none/manifests").mkdir()
    assert examine_project(tmp_path / "none")[1].level is Level.PROBLEM


def test_devices_that_are_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = manifest(tmp_path, spec(opsets=(17, 18), devices=("cpu", "cuda")))

    def probe(_: str, arguments: dict[str, Device], *_others: object, **_options: object) -> str:
        if arguments["device"].name == "cuda":
            raise ExporterError(ExitCode.ENVIRONMENT, "no GPU")
        return "CPUExecutionProvider"

    monkeypatch.setattr(doctor, "call_in_child", probe)
    assert group_by_level(list(examine_devices(of, {}))) == {
        "ok": ["device cpu: CPUExecutionProvider works"],
        "note": ["device cuda: 2 cells unavailable: no GPU"],
    }
    assert list(examine_devices(manifest(tmp_path).model_copy(update={"models": ()}), {})) == []


def built(of: Manifest) -> dict[str, list[str]]:
    return group_by_level(list(examine_build(of)))


def test_a_build_folder(tmp_path: Path) -> None:
    of = manifest(tmp_path)
    assert built(of) == {"ok": ["build: there is no build yet"]}
    export(of, FakeEngine(finish))
    assert built(of) == {
        "ok": [
            "build: 3 of 3 results are up to date",
            "results: built with the installed tools",
        ]
    }
    more = manifest(tmp_path, spec(opsets=(17, 18, 19, 20)))
    assert built(more)["note"] == ["build: 3 of 4 results are up to date; 1 do not exist yet"]
    assert built(manifest(tmp_path, spec(seed=1)))["note"] == [
        "build: 0 of 3 results are up to date",
        "build: stale: 3: its manifest entry changed (tiny/17/cpu)",
    ]


def test_a_short_proof_is_stale_without_the_device_that_proved_the_file(tmp_path: Path) -> None:
    of = manifest(tmp_path, spec(opsets=(17,), devices=("cpu", "reference")))
    export(of, FakeEngine(prove_shortly(Status.PASS)))
    assert "build: 2 of 2 results are up to date" in built(of)["ok"]
    (tmp_path / "build/tiny/records/17.cpu.json").unlink()
    reason = "cpu, which proved its file, is not valid, green and before it"
    assert built(of)["note"] == [
        "build: 0 of 2 results are up to date; 1 do not exist yet",
        f"build: stale: 1: {reason} (tiny/17/reference)",
    ]


def test_a_damaged_build_folder(tmp_path: Path) -> None:
    of = manifest(tmp_path)
    export(of, FakeEngine(finish))
    (tmp_path / "build/tiny/17.onnx").write_text("another")
    (tmp_path / "build/tiny/records/18.cpu.json").write_text("{")
    result = built(of)
    assert result["note"] == ["build: 1 of 3 results are up to date"]
    [damage] = result["problem"]
    assert damage.startswith("build: damaged, rebuilt by the next export: 2: ")
    assert damage.endswith(", and 1 for other reasons")
    (tmp_path / "build/results.json").write_text("{")
    assert "is not a results file" in built(of)["problem"][-1]


def test_results_of_other_tools(tmp_path: Path) -> None:
    of = manifest(tmp_path)
    export(of, FakeEngine(finish))
    path = tmp_path / "build/results.json"
    run = read_run(path)
    other = run.model_copy(update={"tools": {**run.tools, "torch": "2.0.0"}})
    path.write_text(other.to_json())
    [line] = [text for text in built(of)["note"] if text.startswith("results")]
    assert line == f"results: built with other tools: torch 2.0.0 -> {run.tools['torch']}"


def test_a_build_folder_that_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "build").symlink_to(tmp_path)
    assert "is a symlink" in built(manifest(tmp_path))["problem"][0]


def test_the_store(tmp_path: Path) -> None:
    assert examine_store(None).level is Level.NOTE
    store = Store(tmp_path / "store", LIMITS)
    assert examine_store(store).message == f"{tmp_path}/store, at most 5GiB: empty"
    of = manifest(tmp_path)
    export(of, FakeEngine(finish), store=store)
    result = examine_store(store)
    assert result.level is Level.OK
    assert result.message.endswith("B, 3 results")
    assert examine_store(Store(tmp_path / "store", LIMITS, is_read_only=True)).message.endswith(
        "read-only"
    )
    (tmp_path / "file").write_text("")
    assert examine_store(Store(tmp_path / "file/store", LIMITS)).level is Level.PROBLEM


def test_a_store_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "store").mkdir()
    monkeypatch.setattr(LocalFiles, "check_access", refuse)
    result = examine_store(Store(tmp_path / "store", LIMITS))
    assert result.level is Level.PROBLEM
    text = "cannot be read: Permission denied; no result is restored"
    assert result.message == f"{tmp_path}/store: {text}"


def test_a_store_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    result = examine_store(Store(tmp_path / "store", LIMITS))
    assert result.level is Level.NOTE
    assert result.message.endswith("read-only, because it cannot be written")
