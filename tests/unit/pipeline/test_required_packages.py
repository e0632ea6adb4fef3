"""The packages of workers and the environments of devices."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from exporter.cache import states
from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Device, Manifest, RuntimeEnvironment
from exporter.pipeline import device_environments, toolchain_export
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.decisions import RecordValidator
from exporter.pipeline.device_environments import InstallationFailure
from exporter.pipeline.required_packages import require_own_checkout, require_packages
from exporter.records.record import CellId
from exporter.store.store_entry import make_lookup_key
from exporter.virtual_environments import EnvironmentDefinition, InstalledEnvironment
from tests.distributions import write_distribution
from tests.unit.factory import make_run
from tests.unit.pipeline.builders import BuildLog, FakeEngine, export, finish, manifest, spec


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    def find_spec(name: str) -> ModuleSpec | None:
        return None if name in missing else ModuleSpec(name, None)

    monkeypatch.setattr("exporter.pipeline.required_packages.find_spec", find_spec)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (("torch",), "torch is not installed here: the command needs `pip install '"),
        (("torch", "onnxscript"), "torch, onnxscript are not installed here"),
    ],
)
def test_missing_packages_are_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], message: str
) -> None:
    without(monkeypatch, *missing)
    with pytest.raises(ExporterError, match=message) as caught:
        require_packages()
    assert caught.value.exit_code is ExitCode.ENVIRONMENT


def test_a_complete_environment_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    require_packages()


PACKAGES = {"onnxruntime": "1.17.3", "numpy": "1.26.4", "pip": "24.0"}
CELL = CellId(model="net", opset=18, device="old")


class FakeInstaller:
    """Creates the environment of a model on the devices `cpu` and `old` in memory."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        environment = RuntimeEnvironment(
            name="ort117", requirements=("onnxruntime==1.17.3",), location="pyproject.toml:3"
        )
        old = Device(name="old", runtime="onnxruntime", environment=environment)
        base = manifest(root, spec("net", opsets=(18,), devices=("cpu", "old")))
        settings = {"devices": (base.project.find_device("cpu"), old)}
        project = base.project.model_copy(update=settings)
        self.manifest = base.model_copy(update={"project": project})
        self.packages: Mapping[str, str] = PACKAGES
        self.created: list[EnvironmentDefinition] = []
        self.error = ""
        monkeypatch.setattr(device_environments, "find_environment", self.find)
        monkeypatch.setattr(device_environments, "install_environment", self.install)

    def find(self, definition: EnvironmentDefinition, folder: Path) -> InstalledEnvironment | None:
        if definition not in self.created:
            return None
        return InstalledEnvironment(folder=folder / definition.key, packages=self.packages)

    def install(self, definition: EnvironmentDefinition, folder: Path) -> InstalledEnvironment:
        if self.error:
            raise InstallationFailure(self.error)
        self.created.append(definition)
        folder.mkdir(parents=True, exist_ok=True)
        return InstalledEnvironment(folder=folder / definition.key, packages=self.packages)


@pytest.fixture
def installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeInstaller:
    return FakeInstaller(tmp_path, monkeypatch)


def build(of: Manifest) -> tuple[FakeEngine, BuildLog]:
    engine = FakeEngine(finish)
    return engine, export(of, engine)[1]


def test_an_environment_is_created_for_cells_that_run(
    installer: FakeInstaller, tmp_path: Path
) -> None:
    engine, log = build(installer.manifest)
    assert len(installer.created) == 1
    (job,) = (task.job for task in engine.tasks)
    devices = {device.name: device for opset in job.opsets for device in opset.devices}
    environment = devices["old"].environment
    assert environment is not None
    assert environment.interpreter.startswith(str(tmp_path / "build" / ".environments"))
    assert environment.runtime_versions == "onnxruntime 1.17.3"
    parts = job.make_fingerprint(CELL)
    assert parts["tool.onnxruntime of ort117"] == "1.17.3"
    assert "tool.pip of ort117" not in parts
    assert "tool.onnxruntime of ort117" not in job.make_fingerprint(
        CELL.model_copy(update={"device": "cpu"})
    )
    assert any("creating the environment ort117: onnxruntime==1.17.3" in n for n in log.notes)


def test_a_second_run_creates_and_runs_nothing(installer: FakeInstaller) -> None:
    of = installer.manifest
    build(of)
    engine, _ = build(of)
    assert engine.tasks == []
    installer.created.clear()  # as on another machine with the same results
    engine, _ = build(of)
    assert engine.tasks == []
    assert installer.created == []


def test_another_version_makes_the_cells_stale(installer: FakeInstaller) -> None:
    of = installer.manifest
    build(of)
    installer.packages = {**PACKAGES, "onnxruntime": "1.17.4", "pip": "25.0"}
    engine, log = build(of)
    assert [cell.device for task in engine.tasks for cell in task.job.cells()] == ["old"]
    assert log.reasons[str(CELL)] == "onnxruntime of ort117 1.17.3 -> 1.17.4"


def test_a_failure_is_a_property_of_the_device(installer: FakeInstaller) -> None:
    installer.error = "pip cannot install onnxruntime==1.17.3: No match"
    engine, log = build(installer.manifest)
    (job,) = (task.job for task in engine.tasks)
    devices = {device.name: device for opset in job.opsets for device in opset.devices}
    environment = devices["old"].environment
    assert environment is not None
    assert environment.problem.startswith("pyproject.toml:3: the environment ort117 cannot be")
    assert environment.problem in log.notes


def test_the_store_finds_cells_before_the_environment_is_created(installer: FakeInstaller) -> None:
    of = installer.manifest
    before = RecordValidator(of).fingerprints.get_cell_parts(CELL)
    build(of)
    assert installer.created
    after = RecordValidator(of).fingerprints.get_cell_parts(CELL)
    assert before != after
    assert make_lookup_key(CELL, before) == make_lookup_key(CELL, after)


def test_the_export_must_use_the_installed_versions(
    installer: FakeInstaller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = InstalledEnvironment(folder=Path(), packages={"onnx": "1.22.0", "timm": "1.0.0"})
    runs = [
        make_run(tools={"onnx": version, "torch": "2.13.0"}) for version in ("1.22.0", "1.21.0")
    ]
    monkeypatch.setattr(toolchain_export, "run_program", lambda *_: 0)
    monkeypatch.setattr(toolchain_export, "read_run", lambda _: runs.pop(0))
    project = installer.manifest.project
    export = partial(toolchain_export.run_nested_export, project, installed)
    assert export(BuildFolder(tmp_path), (), {}, print).tools["onnx"] == "1.22.0"
    with pytest.raises(ExporterError, match=r"used onnx 1\.21\.0 instead of 1\.22\.0") as caught:
        export(BuildFolder(tmp_path), (), {}, print)
    assert caught.value.exit_code is ExitCode.ENVIRONMENT


@pytest.mark.parametrize(
    ("layout", "is_own"), [("flat", True), ("flat.pth", True), ("src", False), ("src.pth", False)]
)
def test_an_editable_installation_of_another_checkout_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, is_own: bool
) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for root in (first, second):
        (root / ("src/acme_own" if "src" in layout else "acme_own")).mkdir(parents=True)
        (root / "pyproject.toml").write_text('[project]\nname = "acme-own"\n')
    origin = json.dumps({"url": first.as_uri(), "dir_info": {"editable": True}})
    metadata = write_distribution(tmp_path / "c", "acme-own", **{"direct_url.json": origin})
    if layout.endswith(".pth"):
        (metadata / "RECORD").write_text("acme_own.pth,,\n")
        folder = first / "src" if "src" in layout else first
        (metadata.parent / "acme_own.pth").write_text(f"{folder}\n")
    else:
        (metadata / "top_level.txt").write_text("acme_own\n")
    monkeypatch.setattr(sys, "path", [str(metadata.parent), *sys.path])
    monkeypatch.setattr(states, "_FIRST_PATH", tuple(sys.path))
    for cached in (states.list_metadata_folders, states.read_distribution):
        cached.cache_clear()
    require_own_checkout(first)
    require_own_checkout(tmp_path)  # a project without a package
    if is_own:
        require_own_checkout(second)
    else:
        with pytest.raises(ExporterError, match=f"{first} .* not those of {second}; "):
            require_own_checkout(second)
    for cached in (states.list_metadata_folders, states.read_distribution):
        cached.cache_clear()
