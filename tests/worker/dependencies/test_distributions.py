"""Installed distributions with a loaded module."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.cache import states
from exporter.cache.states import read_loaded_state, read_package_state
from exporter.worker.dependencies import source_files

_CACHES = (
    source_files.map_module_owners,
    states.list_metadata_folders,
    read_package_state,
)


def clear_caches() -> None:
    for each in _CACHES:
        each.cache_clear()


def install(folder: Path, name: str, *lines: str) -> Path:
    """Install a distribution with one module; return the folder of its metadata."""
    metadata = folder / f"{name}-1.5.dist-info"
    metadata.mkdir(parents=True)
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n"
    (metadata / "METADATA").write_text(text)
    (metadata / "RECORD").write_text("\n".join((f"{name}.py,,", *lines)))
    (folder / f"{name}.py").write_text("")
    return metadata


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of installed packages in the initial search path."""
    folder = tmp_path / "environment/site-packages"
    folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setattr(states, "_FIRST_PATH", tuple(sys.path))
    clear_caches()
    yield folder
    clear_caches()


def test_a_vendored_package_is_omitted(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(packages, "outer_of_test")
    install(packages / "vendor", "inner_of_test")
    monkeypatch.setattr(sys, "path", [str(packages / "vendor"), *sys.path])
    assert "outer_of_test" not in source_files.list_loaded_packages(packages)
    for name in ("outer_of_test", "inner_of_test"):
        importlib.import_module(name)
    loaded = source_files.list_loaded_packages(packages)
    assert loaded["outer_of_test"].startswith("1.5 ")
    assert "inner_of_test" not in loaded


def test_metadata_that_a_build_left_in_the_project_does_not_count(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    install(packages, "built_of_test", "added.py,,")
    install(root, "built_of_test")
    monkeypatch.setattr(sys, "path", [str(root), *sys.path])  # as the import of a model does
    importlib.import_module("built_of_test")
    in_worker = source_files.list_loaded_packages(root)["built_of_test"]
    monkeypatch.setattr(states, "_FIRST_PATH", (str(root), str(packages)))
    clear_caches()
    assert in_worker == read_loaded_state("built_of_test", root)
    # Another build of the installed package is still a change.
    (packages / "built_of_test-1.5.dist-info/RECORD").write_text("other.py,,")
    clear_caches()
    assert in_worker != read_loaded_state("built_of_test", root)


def test_an_editable_installation_of_the_project_has_its_place_as_its_state(
    packages: Path, tmp_path: Path
) -> None:
    states = []
    for number, place in enumerate(("main/project", "copy/project", "library")):
        name = f"editable{number}_of_test"
        url = (tmp_path / place).as_uri()
        origin = json.dumps({"url": url, "dir_info": {"editable": True}})
        (install(packages, name) / "direct_url.json").write_text(origin)
        (tmp_path / place / ".git").mkdir(parents=True)
        states.append(read_loaded_state(name, tmp_path / "main/project"))
    assert states[0] == read_loaded_state("editable1_of_test", tmp_path / "copy/project")
    # An installation of another repository keeps its version and its files.
    assert states[2].startswith("1.5 ")
