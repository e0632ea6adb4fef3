"""Folders of killed publications are removed, and those of running ones stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from filelock import FileLock

from exporter.tools.publish.publisher import open_private_folder


def make_folder(path: Path, *, age: float) -> None:
    path.mkdir()
    (path / "model.onnx").touch()
    (path / ".lock").touch()
    changed = path.stat().st_mtime - age
    os.utime(path, (changed, changed))


def test_a_folder_of_a_killed_publication_is_removed(tmp_path: Path) -> None:
    make_folder(tmp_path / ".publish-killed", age=100)
    make_folder(tmp_path / ".publish-young", age=0)
    make_folder(tmp_path / ".publish-running", age=100)
    (tmp_path / "alexnet").mkdir()
    with (
        FileLock(tmp_path / ".publish-running/.lock"),
        open_private_folder(tmp_path) as private,
    ):
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {".publish-young", ".publish-running", "alexnet", private.name}
    assert not private.exists()


def test_the_folder_is_removed_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), open_private_folder(tmp_path):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
