"""An export in two parts gives what one export gives; a lost part is red."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from exporter.records.record import RunRecord, read_run
from tests.integration.project import make_project, run_exporter


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The build folders of both shards, of a project with one red model."""
    builds = []
    for index in (1, 2):
        root = tmp_path_factory.mktemp(f"shard{index}") / "project"
        make_project(root, good="Good", bad="Raises")
        command = run_exporter(root, "export", "--shard", f"{index}/2")
        assert f"shard {index}/2: `exporter merge` writes the tables" in command.stdout, (
            command.stderr
        )
        assert not (root / "reports").exists()
        builds.append(root / "build")
    return builds


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project", good="Good", bad="Raises")


def test_both_parts_make_the_whole(project: Path, parts: list[Path]) -> None:
    models = [{path.parent.name for path in part.glob("*/records")} for part in parts]
    assert models[0] != models[1]
    command = run_exporter(project, "merge", *map(str, parts))
    # Red cells are there, and red; that is for the gate to judge.
    assert command.returncode == 0, command.stderr
    assert "4 cells: 2 pass, 2 error" in command.stdout
    run = read_run(project / "build/results.json")
    assert sorted(run.by_cell()) == ["bad/16/cpu", "bad/17/cpu", "good/16/cpu", "good/17/cpu"]
    assert (project / "build/good/17.onnx").is_file()
    assert "good" in (project / "reports/COMPATIBILITY.md").read_text()
    # The next export finds all of it in place.
    plan = run_exporter(project, "plan")
    assert "0 cells to run" in plan.stdout, plan.stdout
    (project / "reports/baseline.json").unlink(missing_ok=True)
    assert run_exporter(project, "baseline").returncode == 0
    assert run_exporter(project, "gate").returncode == 0


def test_a_lost_part_is_red(project: Path, parts: list[Path], tmp_path: Path) -> None:
    lost = run_exporter(project, "merge", str(parts[0]))
    assert lost.returncode == 1
    assert "shard 2/2 is missing" in lost.stderr
    assert not (project / "build/results.json").exists()
    damaged = tmp_path / "damaged"
    shutil.copytree(parts[1], damaged)
    (damaged / "results.json").write_text(RunRecord(tools={}, records=()).to_json())
    mixed = run_exporter(project, "merge", str(parts[0]), str(damaged))
    assert mixed.returncode == 1
    assert "was made with other tools" in mixed.stderr


def test_a_cell_that_did_not_come_is_red(project: Path, parts: list[Path], tmp_path: Path) -> None:
    short = tmp_path / "short"
    shutil.copytree(parts[0], short)
    run = read_run(short / "results.json")
    (short / "results.json").write_text(
        run.model_copy(update={"records": run.records[1:]}).to_json()
    )
    command = run_exporter(project, "merge", str(short), str(parts[1]))
    assert command.returncode == 1
    assert "no result: shard 1/2: the last export left no current result of it" in command.stderr


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2"])
def test_what_is_no_shard_is_said(project: Path, shard: str) -> None:
    command = run_exporter(project, "export", f"--shard={shard}")
    assert command.returncode == 2
    assert "expected" in command.stderr


def test_a_part_without_models_is_done_at_once(project: Path) -> None:
    command = run_exporter(project, "export", "--shard", "3/3")
    assert command.returncode == 0, command.stderr
    assert (project / "build/shard.json").is_file()
