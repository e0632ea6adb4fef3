"""`exporter rehearse` exports with other packages, and changes nothing of the project.

The other package is a wheel that the test writes, so no index is needed.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.project import make_project, read_files, run_exporter
from tests.integration.wheels import SCALED_MODEL, write_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a package whose function fails."""
    folder = tmp_path_factory.mktemp("wheels")
    return write_wheel(folder, "2.0", "raise RuntimeError('no scale in version 2')")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with green results of two models, of which one uses the package."""
    root = tmp_path_factory.mktemp("rehearse") / "project"
    make_project(root, more_models=SCALED_MODEL, opsets="[17]", scaled="Scaled")
    run_exporter(root, "export", code=0)
    return root


def read_project(root: Path) -> dict[str, bytes]:
    """Return the files of the project, without the folders of rehearsals and the stamps.

    Each command that hashes a file may keep its stamp.
    """
    return {
        name: data
        for name, data in read_files(root).items()
        if "__pycache__" not in name
        and not name.startswith(("build/.rehears", "build/.envir"))
        and name not in ("build/stamps.json", "build/source-stamps.json")
    }


@pytest.mark.campaign
def test_a_regression_is_found_and_nothing_changes(exported: Path, wheel: Path) -> None:
    before = read_project(exported)
    command = run_exporter(exported, "rehearse", str(wheel), code=1)
    lines = command.stdout.splitlines()
    assert lines[0].startswith("scaled/17/cpu: newly red: pass -> error at source")
    assert "no scale in version 2" in lines[1]
    assert lines[-1] == "1 cell compared, 1 regression"
    assert read_project(exported) == before


@pytest.mark.campaign
def test_the_message_of_pip_is_printed(exported: Path) -> None:
    command = run_exporter(exported, "rehearse", "no such requirement", code=4)
    assert "Invalid requirement: 'no such requirement'" in command.stderr


@pytest.mark.campaign
def test_a_typo_in_the_selection_installs_nothing(exported: Path, tmp_path: Path) -> None:
    command = run_exporter(exported, "rehearse", "onnx", "--cells", "skaled")
    assert (command.returncode, "did you mean 'scaled'?" in command.stderr) == (3, True)
    assert "installing" not in command.stderr


def test_results_in_place_are_necessary(tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", good="Good")
    command = run_exporter(root, "rehearse", "onnx", code=5)
    assert "no results yet; run `exporter export` first" in command.stderr
    assert not (root / "build").exists()


@pytest.mark.campaign
def test_the_cells_of_torchscript_are_exported_by_dynamo(tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", opsets="[9, 17, 18]", good="Good")
    assert run_exporter(root, "export").returncode == 0
    before = read_project(root)
    command = run_exporter(root, "rehearse", "--exporter", "dynamo", "--json", code=1)
    report = json.loads(command.stdout)
    assert (report["exporter"], report["cells"]) == ("dynamo", 2)
    outcomes = {each["cell"]: (each["after"], each["runtime"]) for each in report["outcomes"]}
    # IR version 10 needs a newer release than the opset does.
    assert outcomes["good/17/cpu"] == ("pass", "1.12 -> 1.18")
    assert outcomes["good/9/cpu"][0] == "fail at structure (opset)"
    assert read_project(root) == before
    command = run_exporter(root, "rehearse", "--exporter", "dynamo", "--opset", "18", code=3)
    assert "no selected cell has another exporter than dynamo" in command.stderr


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the settings of pip for a folder of releases, of which the last is for Python 3.9."""
    folder = tmp_path_factory.mktemp("releases")
    for version in ("1.0", "2.0", "3.0"):
        write_wheel(folder, version, "return 1")
    write_wheel(folder, "4.0", "return 1", python="cp39")
    return {"PIP_FIND_LINKS": str(folder), "PIP_NO_INDEX": "1"}


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ("no-such-package-of-test>=1", "No matching distribution found"),
        ("scale-of-test>=9", "the index has 1.0, 2.0, 3.0"),
        ("scale-of-test>=3", "a bisect needs two releases, got only 3.0"),
        ("scale-of-test about 2", "scale-of-test about 2: expected comparisons of versions"),
    ],
)
def test_a_bisect_without_an_answer_gives_the_reason(
    requirement: str, message: str, exported: Path, index: dict[str, str]
) -> None:
    arguments = ("rehearse", "--bisect", requirement, "--cells", "scaled")
    command = run_exporter(exported, *arguments, **index)
    assert (command.returncode, message in command.stderr) == (4, True), command.stderr
    assert command.stdout == ""
