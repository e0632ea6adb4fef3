"""The state of Python's search path, and the packages that are imported through it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.cache import states
from exporter.cache.fingerprint import CurrentState
from exporter.cache.states import (
    SEARCH_PATH,
    list_package_folders,
    read_loaded_state,
    read_search_path,
)
from tests.unit.factory import make_record


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder of installed packages."""
    folder = tmp_path / "environment/site-packages"
    folder.mkdir(parents=True)
    monkeypatch.setattr(states, "list_package_folders", lambda: (str(folder),))
    return folder


def test_the_variable_is_a_part_of_the_path(packages: Path, tmp_path: Path) -> None:
    root = tmp_path / "repository/project"
    (tmp_path / "repository/.git").mkdir(parents=True)
    root.mkdir()
    assert read_search_path(root, "") == "no folders"
    own = states._OWN_FOLDER
    folders = (own, str(tmp_path / "repository/library"), "/other", "")
    assert read_search_path(root, os.pathsep.join(folders)) == f"../library{os.pathsep}/other"
    variable = os.pathsep.join(reversed(folders))
    assert read_search_path(root, variable) == f"/other{os.pathsep}../library"


def test_an_editable_install_is_a_part_of_the_path(packages: Path, tmp_path: Path) -> None:
    lines = ("# a comment", "import loader; loader.install()", "/library/src", "inner", "")
    (packages / "editable.pth").write_text("\n".join(lines))
    (packages / ".hidden.pth").write_text("/hidden")
    assert read_search_path(tmp_path / "project", "") == "/library/src"
    (packages / "editable.pth").write_text("/library/other")
    assert read_search_path(tmp_path / "project", "") == "/library/other"


def test_another_path_makes_a_record_stale(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/one")
    states = {SEARCH_PATH: read_loaded_state(SEARCH_PATH, tmp_path)}
    record = make_record("net/18/cpu").model_copy(update={"packages": states})
    assert CurrentState(tmp_path).find_changed_package_reason(record) == ""
    monkeypatch.setenv("PYTHONPATH", "/two")
    reason = "Python searches for modules in /two, before in /one"
    assert CurrentState(tmp_path).find_changed_package_reason(record) == reason


def test_the_packages_of_an_environment_below_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = str(tmp_path / "site-packages")
    monkeypatch.setattr(states, "_FIRST_PATH", (below, str(tmp_path)))
    assert below in list_package_folders()
    assert str(tmp_path) not in list_package_folders()
