"""Data files that a model opens by itself belong to what it was made from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter.worker.opened import OpenedFiles


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("data/words.json", "build/made.json", "code.py", "other.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    return tmp_path


def test_what_is_read_inside_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = OpenedFiles(root, root / "build")
    (root / "other.json").read_text()
    with files.watched():
        json.loads((root / "data" / "words.json").read_text())
        monkeypatch.chdir(root / "data")
        Path("../data/words.json").read_bytes()
    (root / "other.json").read_text()
    assert files.names() == ("data/words.json",)


def test_code_what_is_written_and_what_lies_elsewhere_is_left_out(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "x.json"
    elsewhere.write_text("{}")
    files = OpenedFiles(root, root / "build")
    with files.watched():
        for path in (root / "code.py", root / "build/made.json", elsewhere):
            path.read_text()
        (root / "new.json").write_text("{}")
        (root / "gone.json").write_text("{}")
        (root / "gone.json").read_text()
        (root / "gone.json").unlink()
    assert files.names() == ()


def test_two_may_watch_at_once(root: Path) -> None:
    one, other = OpenedFiles(root, root / "build"), OpenedFiles(root, root / "build")
    with one.watched():
        with other.watched():
            (root / "other.json").read_text()
        (root / "data/words.json").read_text()
    assert one.names() == ("data/words.json", "other.json")
    assert other.names() == ("other.json",)
