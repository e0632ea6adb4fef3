"""A merged shard has the results of its export; a missing shard is an error.

`test_github_workflow.py` merges the shards of several exports.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from exporter.records.record import read_run
from tests.integration.project import read_cells, run_exporter


@pytest.fixture
def project(tiny: Path, tmp_path: Path) -> Path:
    """Return the tiny project without its results."""
    ignored = shutil.ignore_patterns("build", "reports")
    return Path(shutil.copytree(tiny, tmp_path / "project", ignore=ignored))


def test_a_merged_shard_contains_all_results(tiny: Path, project: Path) -> None:
    run_exporter(tiny, "export", "--shard", "1/1", code=1)
    # A merge does not fail because of red cells; the gate does.
    command = run_exporter(project, "merge", str(tiny / "build"), code=0)
    assert "4 cells: 2 pass, 2 error" in command.stdout
    assert read_cells(project) == read_cells(tiny)
    assert (project / "build/good/17.onnx").is_file()
    assert "good" in (project / "reports/COMPATIBILITY.md").read_text()
    # All merged results are up to date.
    plan = run_exporter(project, "plan")
    assert "0 cells to run" in plan.stdout, plan.stdout
    run_exporter(project, "baseline", code=0)
    run_exporter(project, "gate", code=0)


def test_a_missing_shard_is_an_error(tiny: Path, project: Path) -> None:
    run_exporter(tiny, "export", "--shard", "1/2")
    incomplete = run_exporter(project, "merge", str(tiny / "build"), code=1)
    assert "shard 2/2 is missing" in incomplete.stderr
    # The gate can compare the other cells, and lists the missing ones.
    assert len(read_run(project / "build/results.json").records) == 2


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2"])
def test_an_invalid_shard_is_an_error(project: Path, shard: str) -> None:
    command = run_exporter(project, "export", f"--shard={shard}", code=2)
    assert "expected" in command.stderr


def test_a_shard_without_models_is_green(project: Path) -> None:
    command = run_exporter(project, "export", "--shard", "3/3", code=0)
    assert "shard 3/3: `exporter merge` writes the tables" in command.stdout
    assert (project / "build/shard.json").is_file()
    assert not (project / "reports").exists()
