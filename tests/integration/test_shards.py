"""Two merged shards give the results of one export; a missing shard is an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from exporter.records.record import read_run
from tests.integration.project import make_project, read_cells, run_exporter


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the build folders of two shards of a project with one red model."""
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


def test_merged_shards_contain_all_results(project: Path, shards: list[Path]) -> None:
    models = [{path.parent.name for path in build.glob("*/records")} for build in shards]
    assert models[0] != models[1]
    command = run_exporter(project, "merge", *map(str, shards))
    # A merge does not fail because of red cells; the gate does.
    assert command.returncode == 0, command.stderr
    assert "4 cells: 2 pass, 2 error" in command.stdout
    assert sorted(read_cells(project)) == ["bad/16/cpu", "bad/17/cpu", "good/16/cpu", "good/17/cpu"]
    assert (project / "build/good/17.onnx").is_file()
    assert "good" in (project / "reports/COMPATIBILITY.md").read_text()
    # All merged results are up to date.
    plan = run_exporter(project, "plan")
    assert "0 cells to run" in plan.stdout, plan.stdout
    shutil.rmtree(project / "reports/baseline", ignore_errors=True)
    assert run_exporter(project, "baseline").returncode == 0
    assert run_exporter(project, "gate").returncode == 0


def test_a_missing_shard_is_an_error(project: Path, shards: list[Path]) -> None:
    incomplete = run_exporter(project, "merge", str(shards[0]), code=1)
    assert "shard 2/2 is missing" in incomplete.stderr
    # The gate can compare the other cells, and lists the missing ones.
    assert len(read_run(project / "build/results.json").records) == 2


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2"])
def test_an_invalid_shard_is_an_error(project: Path, shard: str) -> None:
    command = run_exporter(project, "export", f"--shard={shard}", code=2)
    assert "expected" in command.stderr


def test_a_shard_without_models_is_green(project: Path) -> None:
    run_exporter(project, "export", "--shard", "3/3", code=0)
    assert (project / "build/shard.json").is_file()
