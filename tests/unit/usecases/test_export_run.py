"""The use case `export`."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.cli.output.progress import LineProgress
from exporter.pipeline import Decisions
from exporter.planning.plan import make_plan
from exporter.usecases import export_run
from exporter.usecases.build_plan import ExportOptions
from tests.unit.factory import make_manifest, make_spec

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
