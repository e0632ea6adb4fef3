"""Changes of the files that results depend on are found, and changes of other files are not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.cache.states import MISSING, read_source_state
from exporter.cli import watch
from exporter.cli.watch import WatchedFiles

RESULT: Any = "the result, whose dependencies are replaced"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[tool.exporter]\n")
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "a.toml").write_text("format = 1\n")
    (tmp_path / "net.py").write_text("size = 1\n")
    (tmp_path / "notes.txt").write_text("one\n")
    return tmp_path


@pytest.fixture
def watched(project: Path, monkeypatch: pytest.MonkeyPatch) -> WatchedFiles:
    names = ("net.py", "weights.npy", "*.py")
    states = {(name, read_source_state(project / name)) for name in names}
    assert ("weights.npy", MISSING) in states
    monkeypatch.setattr(watch, "_list_sources", lambda result: states)
    files = WatchedFiles(project)
    assert files.update(RESULT) == []
    return files


def wait_for(watched: WatchedFiles, change: Callable[[], object]) -> list[str]:
    timer = threading.Timer(0.12, change)
    timer.start()
    try:
        return watched.wait()
    finally:
        timer.join()


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("net.py", ["net.py"]),
        ("weights.npy", ["weights.npy"]),  # a dependency that did not exist
        ("torch.py", ["*.py"]),  # a new module can replace another one
        ("pyproject.toml", ["pyproject.toml"]),
    ],
)
def test_a_changed_dependency_ends_the_wait(
    project: Path, watched: WatchedFiles, name: str, found: list[str]
) -> None:
    assert wait_for(watched, lambda: (project / name).write_text("size = 22\n")) == found
    assert watched.update(None) == []


def test_a_new_manifest_and_a_deleted_file_end_the_wait(
    project: Path, watched: WatchedFiles
) -> None:
    manifest = project / "manifests" / "b.toml"
    assert wait_for(watched, lambda: manifest.write_text("format = 1\n")) == [str(manifest)]
    assert wait_for(watched, (project / "net.py").unlink) == ["*.py", "net.py"]


def test_other_files_do_not_end_the_wait(project: Path, watched: WatchedFiles) -> None:
    (project / "notes.txt").write_text("two\n")
    (project / "manifests" / "a.toml~").write_text("format = 1\n")
    (project / "net.py").chmod(0o644)  # the content is the same; only the comparison runs
    found = wait_for(watched, lambda: (project / "net.py").write_text("size = 3\n"))
    assert found == ["net.py"]


def test_many_changes_are_one(project: Path, watched: WatchedFiles) -> None:
    """As in `git checkout`."""

    (project / "branch").mkdir()
    for index in range(20):
        (project / "branch" / f"{index}.toml").write_text("format = 1\n")

    def change() -> None:
        (project / "net.py").write_text("size = 9\n")
        for path in (project / "branch").iterdir():
            path.rename(project / "manifests" / path.name)

    assert len(wait_for(watched, change)) == 21
    assert watched.update(None) == []


def test_a_change_during_the_export_is_reported(
    project: Path, watched: WatchedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "net.py").write_text("size = 4\n")
    assert watched.update(RESULT) == ["net.py"]
    assert watched.update(RESULT) == []


def test_a_change_of_a_new_dependency_during_the_export_is_reported(
    project: Path, watched: WatchedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_list_sources", lambda result: {("notes.txt", "0" * 64)})
    assert watched.update(RESULT) == ["notes.txt"]


def test_only_a_changed_package_needs_a_restart(
    watched: WatchedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "have_tools_changed", lambda: False)
    assert not watched.needs_restart(["net.py"])
    assert watched.needs_restart(["net.py", f"{watch.list_package_folders()[0]}/"])
    monkeypatch.setattr(watch, "have_tools_changed", lambda: True)
    assert watched.needs_restart(["net.py"])
