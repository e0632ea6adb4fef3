"""Pages are written again where anything that they are made from is another."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.report.up_to_date import is_up_to_date, key_of, save_up_to_date_key


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "reports"
    (folder / "models").mkdir(parents=True)
    (folder / "models/a.md").write_text("a page")
    return folder


def test_pages_stand_until_they_or_their_key_change(tmp_path: Path, reports: Path) -> None:
    note, page = tmp_path / "note.json", reports / "models/a.md"
    assert not is_up_to_date(note, "key", reports)
    save_up_to_date_key(note, "key", reports, ["models/a.md"])
    assert is_up_to_date(note, "key", reports)
    assert not is_up_to_date(note, "another", reports)
    page.write_text("edited")
    assert not is_up_to_date(note, "key", reports)
    page.unlink()
    assert not is_up_to_date(note, "key", reports)
    page.write_text("a page")
    assert is_up_to_date(note, "key", reports)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": "key"}'])
def test_a_damaged_note_says_nothing(tmp_path: Path, reports: Path, text: str) -> None:
    note = tmp_path / "note.json"
    note.write_text(text)
    assert not is_up_to_date(note, "key", reports)


def test_the_key_follows_every_text_and_file(tmp_path: Path) -> None:
    folder = tmp_path / "templates"
    keys = {
        key_of(("a", "b"), (folder,)),
        key_of(("ab",), (folder,)),
        key_of(("b", "a"), (folder,)),
    }
    folder.mkdir()
    (folder / "one").write_text("1")
    keys.add(key_of(("a", "b"), (folder,)))
    (folder / "one").write_text("2")
    keys.add(key_of(("a", "b"), (folder,)))
    (folder / "one").rename(folder / "two")
    keys.add(key_of(("a", "b"), (folder,)))
    assert len(keys) == 6
