"""Pages are written again if one of their inputs has changed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from exporter.jobs import write_json
from exporter.report.reports_folder import PagesNote, compute_key


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "reports"
    (folder / "models").mkdir(parents=True)
    (folder / "models/a.md").write_text("a page")
    return folder


def test_pages_are_up_to_date_until_they_or_their_key_change(tmp_path: Path, reports: Path) -> None:
    note, page = tmp_path / "note.json", reports / "models/a.md"
    assert not PagesNote.load(note).is_for("key", reports)
    assert not PagesNote.load(note).is_for(None, reports)
    digest = hashlib.sha256(b"a page").hexdigest()
    write_json(note, PagesNote(key="key", pages={"models/a.md": digest}))
    assert PagesNote.load(note).is_for("key", reports)
    assert not PagesNote.load(note).is_for("another", reports)
    assert PagesNote.load(note).is_for(None, reports)
    page.write_text("edited")
    assert not PagesNote.load(note).is_for("key", reports)
    page.unlink()
    assert not PagesNote.load(note).is_for("key", reports)
    page.write_text("a page")
    assert PagesNote.load(note).is_for("key", reports)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": "key"}'])
def test_a_damaged_note_counts_as_missing(tmp_path: Path, reports: Path, text: str) -> None:
    note = tmp_path / "note.json"
    note.write_text(text)
    assert not PagesNote.load(note).is_for("key", reports)


def test_the_key_depends_on_every_text_and_file(tmp_path: Path) -> None:
    folder = tmp_path / "templates"
    keys = {
        compute_key(("a", "b"), (folder,)),
        compute_key(("ab",), (folder,)),
        compute_key(("b", "a"), (folder,)),
    }
    folder.mkdir()
    (folder / "one").write_text("1")
    keys.add(compute_key(("a", "b"), (folder,)))
    (folder / "one").write_text("2")
    keys.add(compute_key(("a", "b"), (folder,)))
    (folder / "one").rename(folder / "two")
    keys.add(compute_key(("a", "b"), (folder,)))
    assert len(keys) == 6
