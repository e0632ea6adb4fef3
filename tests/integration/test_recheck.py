"""The checks once more on a file that is there: only where all that they need is there as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.cache.fingerprint import THOROUGH
from exporter.records.record import Record, read_run
from tests.integration.project import make_project, run_exporter

_HAND = "tolerance = { atol = 1e-3, rtol = 1e-3 }\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project", good="Good")


def add(project: Path, lines: str) -> None:
    manifest = project / "manifests/tiny.toml"
    manifest.write_text(manifest.read_text() + lines)


def made(project: Path) -> dict[str, Record]:
    return read_run(project / "build/results.json").by_cell()


def passes(project: Path, *arguments: str) -> None:
    done = run_exporter(project, "export", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr


def test_weights_that_are_inputs_are_there_for_another_tolerance(project: Path) -> None:
    add(project, "options = { export_params = false }\n")
    passes(project)
    add(project, _HAND)
    passes(project)
    weights = project / "build/good/weights"
    assert {path.name for path in weights.iterdir()} == {"weight_0.pb", "weight_1.pb"}


def test_a_call_that_code_makes_stays_written_down(project: Path) -> None:
    with (project / "manifests/models.py").open("a") as file:
        file.write("\n\ndef call(sizes):\n    return (torch.randn(sizes['batch'], 4),), {}\n")
    add(project, 'inputs_from = "models.py:call"\n')
    passes(project)
    add(project, _HAND)
    passes(project)
    assert (project / "build/good/contract.json").is_file()


def test_thoroughly_is_said_only_of_what_all_samples_were_held_against(project: Path) -> None:
    passes(project, "--thorough")
    assert all(record.thorough for record in made(project).values())
    # The usual samples take the place of the others, beside a cell that was proved with all.
    passes(project, "good/16", "--force")
    add(project, _HAND)
    passes(project)
    assert not any(record.thorough for record in made(project).values())


def test_a_thorough_run_after_another_tolerance_is_one(project: Path) -> None:
    passes(project)
    add(project, _HAND)
    passes(project, "--thorough")
    samples = len(list((project / "build/good").glob("test_data_set_*")))
    for record in made(project).values():
        assert record.thorough
        assert record.fingerprint[THOROUGH] == "yes"
    # What is there now serves another tolerance, and stays as thorough as it was.
    add(project, 'description = "the same"\n')
    manifest = project / "manifests/tiny.toml"
    manifest.write_text(manifest.read_text().replace("atol = 1e-3", "atol = 1e-2"))
    passes(project)
    assert all(record.thorough for record in made(project).values())
    assert len(list((project / "build/good").glob("test_data_set_*"))) == samples
