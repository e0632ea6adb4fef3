"""A recheck runs the checks on an existing file if all data that it needs exists."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from exporter.cache.fingerprint import THOROUGH
from exporter.records.record import Record
from tests.integration.project import make_project, read_cells, run_exporter

CALL = """

def call(sizes):
    return (torch.randn(sizes["batch"], 4),), {}
"""
#: Models with lines of their entry that a recheck needs data for.
LINES = {
    "good": "",
    "code": 'inputs_from = "models.py:call"\n',
    "weights": "options = { export_params = false }\n",
}


def set_tolerance(project: Path, atol: str) -> None:
    """Set the tolerance of all models."""
    manifest = project / "manifests/tiny.toml"
    lines = [line for line in manifest.read_text().splitlines() if "tolerance" not in line]
    lines.insert(lines.index("[defaults]") + 1, f"tolerance = {{ atol = {atol}, rtol = 1e-3 }}")
    manifest.write_text("\n".join(lines))


def read_good_cells(project: Path) -> list[Record]:
    cells = [record for name, record in read_cells(project).items() if name.startswith("good/")]
    assert len(cells) == 2
    return cells


def count_samples(project: Path) -> int:
    return len(list((project / "build/good").glob("test_data_set_*")))


def export_green(project: Path, *arguments: str) -> None:
    command = run_exporter(project, "export", *arguments)
    assert command.returncode == 0, command.stdout + command.stderr


@pytest.fixture(scope="module")
def thorough(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project after an export; `good` is thorough, with another tolerance."""
    folder = tmp_path_factory.mktemp("thorough")
    root = make_project(folder / "project", **dict.fromkeys(LINES, "Good"))
    source, manifest = root / "manifests/models.py", root / "manifests/tiny.toml"
    source.write_text(source.read_text() + CALL)
    text = manifest.read_text().replace("format = 1\n", "format = 1\n[defaults]\n")
    for model, lines in LINES.items():
        text = text.replace(f"[models.{model}]\n", f"[models.{model}]\n{lines}")
    manifest.write_text(text)
    export_green(root)
    assert not any(record.thorough for record in read_cells(root).values())
    set_tolerance(root, "1e-3")
    export_green(root, "--thorough", "good")
    return root


@pytest.fixture(scope="module")
def rechecked(thorough: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project after a recheck with a third tolerance."""
    root = tmp_path_factory.mktemp("rechecked") / "project"
    shutil.copytree(thorough, root)
    set_tolerance(root, "1e-2")
    assert "its tolerances changed" in run_exporter(root, "plan").stdout
    export_green(root)
    return root


def test_weight_inputs_are_kept_for_a_recheck(rechecked: Path) -> None:
    weights = rechecked / "build/weights/weights"
    assert {path.name for path in weights.iterdir()} == {"weight_0.pb", "weight_1.pb"}


def test_the_contract_of_a_call_from_code_is_kept_for_a_recheck(rechecked: Path) -> None:
    assert (rechecked / "build/code/contract.json").is_file()


def test_a_thorough_run_after_a_changed_tolerance_is_thorough(thorough: Path) -> None:
    for record in read_good_cells(thorough):
        assert record.thorough
        assert record.fingerprint[THOROUGH] == "yes"


def test_a_recheck_keeps_the_thorough_samples(thorough: Path, rechecked: Path) -> None:
    assert all(record.thorough for record in read_good_cells(rechecked))
    assert count_samples(rechecked) == count_samples(thorough)


def test_only_cells_with_all_samples_are_thorough(rechecked: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(rechecked, tmp_path / "project"))
    # The usual samples replace the thorough samples, also for the cell that was not rerun.
    export_green(project, "good/16", "--force")
    set_tolerance(project, "1e-4")
    export_green(project, "good")
    assert not any(record.thorough for record in read_good_cells(project))
