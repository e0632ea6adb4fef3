"""Cells of a toolchain are exported by a process of its own, and only if they are stale."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from exporter.cache.states import read_distribution
from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Manifest, Project
from exporter.pipeline import decisions, device_environments, toolchain_export
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.decisions import BuildOptions, RecordValidator, Results
from exporter.pipeline.device_environments import InstallationFailure
from exporter.planning import Selection
from exporter.planning.plan import make_plan
from exporter.program import run_plan
from exporter.records.record import CellId, Record, RunRecord, Status
from exporter.virtual_environments import EnvironmentDefinition, InstalledEnvironment
from tests.distributions import write_distribution
from tests.unit.factory import make_artifact
from tests.unit.pipeline.builders import (
    BuildLog,
    FakeEngine,
    finish,
    format_reference,
    manifest,
    spec,
)

CELL = CellId(model="net", opset=18, device="cpu@old")
OWN = CELL.model_copy(update={"device": "cpu"})


class FakeToolchain:
    """An environment and its export in memory."""

    def __init__(self, of: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
        self.manifest = of
        self.is_installed = self.is_interrupted = False
        self.problem = ""
        self.version = "0.6.2"
        self.exports: list[list[str]] = []
        self.environment: Mapping[str, str] = {}
        for module in (decisions, device_environments):
            monkeypatch.setattr(module, "find_environment", self.find)
        monkeypatch.setattr(device_environments, "install_environment", self.install)
        monkeypatch.setattr(device_environments, "mark_as_used", lambda _: None)
        monkeypatch.setattr(toolchain_export, "run_nested_export", self.export)

    def find(self, definition: EnvironmentDefinition, folder: Path) -> InstalledEnvironment | None:
        return self._environment(definition, folder) if self.is_installed else None

    def install(self, definition: EnvironmentDefinition, folder: Path) -> InstalledEnvironment:
        if self.problem:
            raise InstallationFailure(self.problem)
        self.is_installed = True
        return self._environment(definition, folder)

    def _environment(self, definition: EnvironmentDefinition, folder: Path) -> InstalledEnvironment:
        installed = InstalledEnvironment(folder=folder / definition.key, packages={})
        write_distribution(installed.package_folder, "onnxscript", self.version)
        return installed

    def export(
        self,
        project: Project,
        installed: InstalledEnvironment,
        build: BuildFolder,
        arguments: Iterable[str],
        environment: Mapping[str, str],
        on_line: Callable[[str], None],
    ) -> RunRecord:
        """Prove all requested cells."""
        arguments = list(arguments)
        self.exports.append(arguments)
        self.environment = environment
        of = Manifest(project=project, models=self.manifest.models)
        for text in arguments[arguments.index("--") + 1 :]:
            cell = CellId(model="net", opset=int(text.split("/")[1]), device=text.split("/")[2])
            folder = build.model_folder("net")
            folder.model(cell.opset).parent.mkdir(parents=True, exist_ok=True)
            folder.model(cell.opset).write_text("")
            folder.reference.write_text(format_reference("same"))
            parts = RecordValidator(of).fingerprints.get_cell_parts(cell)
            record = Record(
                cell=cell,
                status=Status.PASS,
                artifact=make_artifact("net", cell.opset, sha256=EMPTY),
                log="net/logs/18.log",
                fingerprint=parts,
            )
            folder.record(cell).parent.mkdir(exist_ok=True)
            folder.record(cell).write_text(record.to_json())
        on_line("a note")
        on_line("done: net")
        if self.is_interrupted:
            raise KeyboardInterrupt
        return RunRecord(tools={}, records=())


EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.fixture
def toolchain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeToolchain:
    """Return the toolchain of a project with the cells `net/18/cpu` and `net/18/cpu@old`."""
    read_distribution.cache_clear()
    base = manifest(tmp_path, spec("net", opsets=(18,), devices=("cpu", "cpu@old")))
    old = EnvironmentDefinition(requirements=("onnxscript==0.6.2",), adds_to_current=True)
    table = '\n[tool.exporter.toolchains.old]\nrequirements = ["onnxscript==0.6.2"]\n'
    (tmp_path / "pyproject.toml").write_text(table)
    devices = tuple(device for device in base.project.devices if device.name == "cpu")
    update = {"devices": devices, "job_environments": {"old": old}}
    settings = base.project.model_copy(update=update)
    return FakeToolchain(base.model_copy(update={"project": settings}), monkeypatch)


def build(
    of: Manifest, selection: Selection | None = None, options: BuildOptions | None = None
) -> tuple[FakeEngine, BuildLog, Results]:
    # Each run is a process of its own.
    read_distribution.cache_clear()
    decisions.read_tool_parts.cache_clear()
    engine, log = FakeEngine(finish), BuildLog()
    plan = make_plan(of, selection or Selection())
    results = run_plan(of, plan, engine, log, options or BuildOptions())
    return engine, log, results


def test_the_first_export_installs_and_exports(toolchain: FakeToolchain, tmp_path: Path) -> None:
    engine, log, results = build(
        toolchain.manifest,
        options=BuildOptions(environment={"LANG": "C"}, thorough=True, force=True),
    )
    assert [cell for task in engine.tasks for cell in task.job.cells()] == [OWN]
    assert toolchain.exports == [
        [
            "--suffix=old",
            "--jobs=1",
            "--force",
            "--thorough",
            "--no-store",
            "--",
            "net/18/cpu@old",
        ]
    ]
    assert toolchain.environment == {"LANG": "C"}
    assert log.statuses() == {"net/18/cpu": "pass", "net/18/cpu@old": "pass"}
    assert log.models == ["net", "net"]
    assert log.notes[0] == "creating the toolchain old: onnxscript==0.6.2"
    assert "toolchain old: a note" in log.notes
    record = results.run.by_cell()[CELL]
    assert record.artifact is not None
    assert record.artifact.file == ".toolchains/old/net/18.onnx"
    assert (tmp_path / "build" / record.artifact.file).exists()
    assert record.log == ".toolchains/old/net/logs/18.log"
    assert record.fingerprint["tool.onnxscript"].split()[0] == "0.6.2"
    assert not results.missing


def test_a_second_export_starts_nothing(toolchain: FakeToolchain) -> None:
    build(toolchain.manifest)
    engine, _, results = build(toolchain.manifest)
    assert (engine.tasks, len(toolchain.exports), results.unchanged) == ([], 1, True)
    assert results.run.by_cell().keys() == {OWN, CELL}


def test_another_version_makes_only_its_cells_stale(toolchain: FakeToolchain) -> None:
    build(toolchain.manifest)
    for path in Path(toolchain.manifest.project.root).rglob("onnxscript-*/METADATA"):
        path.unlink()
    toolchain.version = "0.6.3"
    engine, log, _ = build(toolchain.manifest)
    assert log.reasons == {"net/18/cpu@old": "onnxscript 0.6.2 -> 0.6.3"}
    assert (engine.tasks, len(toolchain.exports)) == ([], 2)


def test_a_removed_environment_is_created_again(toolchain: FakeToolchain) -> None:
    build(toolchain.manifest)
    toolchain.is_installed = False
    _, _, results = build(toolchain.manifest, Selection(devices=("cpu",)))
    reason = "the environment of cpu@old was removed since it was exported"
    assert results.missing == {CELL: reason}
    _, log, results = build(toolchain.manifest)
    assert log.reasons == {"net/18/cpu@old": "the environment of cpu@old was removed"}
    assert not results.missing


def test_a_failed_installation_makes_its_cells_unavailable(toolchain: FakeToolchain) -> None:
    toolchain.problem = "pip cannot install onnxscript==0.6.2: No matching distribution"
    _, log, results = build(toolchain.manifest)
    assert log.statuses() == {"net/18/cpu": "pass", "net/18/cpu@old": "unavailable"}
    message = f"pyproject.toml:2: the toolchain old cannot be created: {toolchain.problem}"
    assert results.run.by_cell()[CELL].message == message
    assert message in log.notes
    assert not toolchain.exports

    toolchain.problem = ""
    _, log, results = build(toolchain.manifest)
    assert log.reasons == {"net/18/cpu@old": "its previous result was unavailable"}
    assert results.run.by_cell()[CELL].status is Status.PASS


def test_a_failed_export_leaves_cells_without_a_result(
    toolchain: FakeToolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> RunRecord:
        raise ExporterError(ExitCode.ENVIRONMENT, "the export exited with code 70")

    monkeypatch.setattr(toolchain_export, "run_nested_export", fail)
    _, log, results = build(toolchain.manifest)
    assert "toolchain old: the export exited with code 70" in log.notes
    assert results.missing == {CELL: "it has not been exported yet"}
    assert results.run.by_cell()[OWN].status is Status.PASS


def test_an_interrupted_export_keeps_finished_results(
    toolchain: FakeToolchain,
) -> None:
    toolchain.is_interrupted = True
    with pytest.raises(KeyboardInterrupt):
        build(toolchain.manifest)
    _, log, _ = build(toolchain.manifest)
    assert log.reasons == {}


def test_the_program_of_a_toolchain_exists() -> None:
    assert find_spec(toolchain_export.NESTED_COMMAND)
