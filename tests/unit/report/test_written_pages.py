"""Pages are written again if one of their inputs has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.report.pages.templates import compute_key, is_up_to_date, save_up_to_date_key


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "reports"
    (folder / "models").mkdir(parents=True)
    (folder / "models/a.md").write_text("a page")
    return folder


def test_pages_are_up_to_date_until_they_or_their_key_change(tmp_path: Path, reports: Path) -> None:
    note, page = tmp_path / "note.json", reports / "models/a.md"
    assert not is_up_to_date(note, "key", reports)
    save_up_to_date_key(note, "key", {"models/a.md": b"a page"})
    assert is_up_to_date(note, "key", reports)
    assert not is_up_to_date(note, "another", reports)
    page.write_text("edited")
    assert not is_up_to_date(note, "key", reports)
    page.unlink()
    assert not is_up_to_date(note, "key", reports)
    page.write_text("a page")
    assert is_up_to_date(note, "key", reports)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": "key"}'])
def test_a_damaged_note_counts_as_missing(tmp_path: Path, reports: Path, text: str) -> None:
    note = tmp_path / "note.json"
    note.write_text(text)
    assert not is_up_to_date(note, "key", reports)


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
