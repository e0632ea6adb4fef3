"""A recheck runs the checks on an existing file if all data that it needs exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.cache.fingerprint import THOROUGH
from exporter.records.record import Record, read_run
from tests.integration.project import make_project, run_exporter

TOLERANCE = "tolerance = { atol = 1e-3, rtol = 1e-3 }\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project", good="Good")


def add(project: Path, lines: str) -> None:
    manifest = project / "manifests/tiny.toml"
    manifest.write_text(manifest.read_text() + lines)


def read_cells(project: Path) -> dict[str, Record]:
    return read_run(project / "build/results.json").by_cell()


def export_green(project: Path, *arguments: str) -> None:
    command = run_exporter(project, "export", *arguments)
    assert command.returncode == 0, command.stdout + command.stderr


def test_weight_inputs_are_kept_for_a_recheck(project: Path) -> None:
    add(project, "options = { export_params = false }\n")
    export_green(project)
    add(project, TOLERANCE)
    export_green(project)
    weights = project / "build/good/weights"
    assert {path.name for path in weights.iterdir()} == {"weight_0.pb", "weight_1.pb"}


def test_the_contract_of_a_call_from_code_is_kept_for_a_recheck(project: Path) -> None:
    with (project / "manifests/models.py").open("a") as file:
        file.write("\n\ndef call(sizes):\n    return (torch.randn(sizes['batch'], 4),), {}\n")
    add(project, 'inputs_from = "models.py:call"\n')
    export_green(project)
    add(project, TOLERANCE)
    export_green(project)
    assert (project / "build/good/contract.json").is_file()


def test_only_cells_with_all_samples_are_thorough(project: Path) -> None:
    export_green(project, "--thorough")
    assert all(record.thorough for record in read_cells(project).values())
    # The usual samples replace the thorough samples, also for the cell that was not rerun.
    export_green(project, "good/16", "--force")
    add(project, TOLERANCE)
    export_green(project)
    assert not any(record.thorough for record in read_cells(project).values())


def test_a_thorough_run_after_a_changed_tolerance_is_thorough(project: Path) -> None:
    export_green(project)
    add(project, TOLERANCE)
    export_green(project, "--thorough")
    samples = len(list((project / "build/good").glob("test_data_set_*")))
    for record in read_cells(project).values():
        assert record.thorough
        assert record.fingerprint[THOROUGH] == "yes"
    # A recheck with another tolerance keeps the thorough samples.
    add(project, 'description = "the same"\n')
    manifest = project / "manifests/tiny.toml"
    manifest.write_text(manifest.read_text().replace("atol = 1e-3", "atol = 1e-2"))
    export_green(project)
    assert all(record.thorough for record in read_cells(project).values())
    assert len(list((project / "build/good").glob("test_data_set_*"))) == samples
