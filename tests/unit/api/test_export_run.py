"""An export selects its engine, and stops at the first red model if it must."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from exporter.api import export_run
from exporter.api.export_run import ExportOptions, FailFastObserver, select_engine
from exporter.cli import entry_point
from exporter.cli.output.progress import LineProgress
from exporter.core.errors import ExitCode, ExporterError, StoppedByFailure
from exporter.manifest import EngineSettings, Project
from exporter.pipeline.decisions import Decisions
from exporter.planning.plan import Shard, make_plan
from exporter.records.record import Status
from tests.unit.factory import make_manifest, make_record, make_spec
from tests.unit.pipeline.builders import BuildLog

MANIFEST = make_manifest(make_spec("a", opsets=(17, 18)))
PLAN = make_plan(MANIFEST)


def test_templates_are_loaded_while_workers_start(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(export_run, "preload_pages", lambda project: loaded.append(project.reports))
    observer = export_run._PreloadingObserver(LineProgress(), MANIFEST.project)
    observer.on_decisions(Decisions(to_run=(), reasons={}))
    assert loaded == []
    reasons = {planned.cell: "no result" for planned in PLAN.to_run}
    observer.on_decisions(Decisions(to_run=PLAN.to_run, reasons=reasons))
    assert loaded == ["reports"]


def test_another_build_folder_uses_the_environments_of_the_project(tmp_path: Path) -> None:
    project = ExportOptions(build=tmp_path / "other").adapt(MANIFEST).project
    assert project.build == str(tmp_path / "other")
    assert project.environments_folder == MANIFEST.project.environments_folder
    assert ExportOptions().adapt(MANIFEST) is MANIFEST


def test_the_build_stops_when_the_red_model_is_in_place() -> None:
    log = BuildLog()
    observer = FailFastObserver(log)
    observer.on_cell_done(make_record("green/18/cpu"))
    observer.on_model_done("green")
    observer.on_cell_done(make_record("red/18/cpu", Status.FAIL))
    observer.on_cell_done(make_record("red/19/cpu", Status.FAIL))
    observer.on_model_done("other")
    with pytest.raises(StoppedByFailure) as stop:
        observer.on_model_done("red")
    assert str(stop.value) == "red/18/cpu"
    # The engine ends the other jobs and reports their finished models.
    observer.on_model_done("red")
    observer.on_note("note")
    assert log.models == ["green", "other", "red", "red"]
    assert len(log.records) == 3
    assert log.notes == ["note"]


def test_an_expected_failure_stops_nothing() -> None:
    observer = FailFastObserver(BuildLog())
    observer.on_cell_done(make_record("net/18/cpu", Status.XFAIL))
    observer.on_model_done("net")


def test_the_command_exits_as_for_red_cells(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def command() -> None:
        raise StoppedByFailure("red/18/cpu")

    monkeypatch.setattr(entry_point, "exporter", command)
    assert entry_point.run([]) == ExitCode.RED
    assert "stopped at red/18/cpu; finished results are kept" in capsys.readouterr().err


def make_project(**values: object) -> Project:
    project = make_manifest(make_spec("net")).project
    return project.model_copy(update={"engine": EngineSettings.model_validate(values)})


def test_the_local_engine_is_the_default() -> None:
    assert select_engine(make_project(), ExportOptions()).kind == "local"


def test_an_option_takes_precedence() -> None:
    project = make_project(kind="dask", cluster="c.py:make", lines={"kind": 3, "cluster": 4})
    assert select_engine(project, ExportOptions(engine="local")).kind == "local"
    chosen = select_engine(project, ExportOptions(scheduler="tcp://h:1"))
    assert (chosen.kind, chosen.scheduler, chosen.cluster) == ("dask", "tcp://h:1", "")
    assert chosen.lines == {"kind": 3}
    assert select_engine(project, ExportOptions(engine="dask")).lines == {"cluster": 4}


def test_only_the_engine_dask_has_a_scheduler() -> None:
    with pytest.raises(ExporterError, match="only the engine dask has a scheduler; add --engine"):
        select_engine(make_project(), ExportOptions(scheduler="tcp://h:1"))


def test_a_shard_cannot_run_on_a_cluster() -> None:
    options = ExportOptions(engine="dask", shard=Shard(index=1, count=2))
    with pytest.raises(ExporterError, match="--shard 1/2: a cluster divides the cells itself"):
        select_engine(make_project(), options)
    assert select_engine(make_project(), ExportOptions(shard=Shard(index=1, count=2)))
