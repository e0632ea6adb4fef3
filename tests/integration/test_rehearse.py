"""`exporter rehearse` exports with other packages, and changes nothing of the project.

The other package is a wheel that the test writes, so no index is needed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.integration.project import MODELS, make_project, run_exporter
from tests.integration.wheels import SCALED_MODEL, write_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a package whose function fails."""
    folder = tmp_path_factory.mktemp("wheels")
    return write_wheel(folder, "2.0", "raise RuntimeError('no scale in version 2')")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with green results of two models, of which one uses the package."""
    root = make_project(tmp_path_factory.mktemp("rehearse") / "project", scaled="Scaled")
    manifest = root / "manifests/tiny.toml"
    manifest.write_text(manifest.read_text().replace("[16, 17]", "[17]"))
    (root / "manifests/models.py").write_text(MODELS + SCALED_MODEL)
    command = run_exporter(root, "export")
    assert command.returncode == 0, command.stdout + command.stderr
    return root


def hash_files(root: Path) -> dict[str, str]:
    """Return the hashes of the project's files, without the folders of rehearsals."""
    paths = (path for path in sorted(root.rglob("*")) if path.is_file())
    names = {path.relative_to(root).as_posix(): path for path in paths}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in names.items()
        if "__pycache__" not in name and not name.startswith(("build/.rehears", "build/.envir"))
    }


def test_a_regression_is_found_and_nothing_changes(exported: Path, wheel: Path) -> None:
    before = hash_files(exported)
    command = run_exporter(exported, "rehearse", str(wheel))
    assert command.returncode == 1, command.stderr
    lines = command.stdout.splitlines()
    assert lines[0].startswith("scaled/17/cpu: newly red: pass -> error at source")
    assert "no scale in version 2" in lines[1]
    assert lines[-1] == "1 cell compared, 1 regression"
    assert hash_files(exported) == before

    command = run_exporter(exported, "rehearse", str(wheel), "--json")
    report = json.loads(command.stdout)
    assert (command.returncode, report["regressions"]) == (1, 1)
    assert hash_files(exported) == before

    command = run_exporter(exported, "rehearse", str(wheel), "--markdown")
    assert command.returncode == 1
    assert command.stdout.startswith("# Rehearsal\n"), command.stderr
    assert hash_files(exported) == before


def test_the_message_of_pip_is_printed(exported: Path) -> None:
    command = run_exporter(exported, "rehearse", "no such requirement")
    assert command.returncode == 4
    assert "Invalid requirement: 'no such requirement'" in command.stderr


def test_a_typo_in_the_selection_installs_nothing(exported: Path, tmp_path: Path) -> None:
    command = run_exporter(exported, "rehearse", "onnx", "--cells", "skaled")
    assert (command.returncode, "did you mean 'scaled'?" in command.stderr) == (3, True)
    assert "installing" not in command.stderr


def test_results_in_place_are_necessary(tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", good="Good")
    command = run_exporter(root, "rehearse", "onnx")
    assert command.returncode == 5
    assert "no results yet; run `exporter export` first" in command.stderr
    assert not (root / "build").exists()
