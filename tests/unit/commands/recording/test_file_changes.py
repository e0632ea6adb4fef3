from __future__ import annotations

from pathlib import Path

import pytest

from exporter.commands.recording import file_changes
from exporter.commands.recording.file_changes import FileChange, apply_changes
from exporter.core.errors import ExporterError


def test_files_are_created_and_extended_and_keep_their_mode(tmp_path: Path) -> None:
    old = tmp_path / "old.txt"
    old.write_text("a\n")
    old.chmod(0o600)
    changes = [
        FileChange(path=tmp_path / "new" / "file.txt", text="b"),
        FileChange(path=old, text="a\nb\n", before="a\n"),
    ]
    assert [change.action for change in changes] == ["create", "extend"]
    apply_changes(changes)
    assert (tmp_path / "new" / "file.txt").read_text() == "b"
    assert old.read_text() == "a\nb\n"
    assert old.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_nothing_is_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    old = tmp_path / "old.txt"
    old.write_text("a")
    write = file_changes.write_text

    def fail(path: Path, text: str) -> None:
        if path.name == "last.txt":
            raise error
        write(path, text)

    monkeypatch.setattr(file_changes, "write_text", fail)
    changes = [
        FileChange(path=old, text="b", before="a"),
        FileChange(path=tmp_path / "new" / "file.txt", text="b"),
        FileChange(path=tmp_path / "last.txt", text="b"),
    ]
    with pytest.raises(error):
        apply_changes(changes)
    assert old.read_text() == "a"
    assert [path.name for path in tmp_path.rglob("*")] == ["old.txt"]


def test_a_file_that_another_program_wrote_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("other")
    with pytest.raises(ExporterError, match="was changed in the meantime"):
        apply_changes([FileChange(path=path, text="new")])
    assert path.read_text() == "other"


def test_a_folder_and_a_file_in_the_way_have_messages(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ExporterError, match="folder: is a folder; rename it"):
        apply_changes([FileChange(path=tmp_path / "folder", text="")])
    (tmp_path / "file").touch()
    with pytest.raises(ExporterError, match="file is a file; rename it"):
        apply_changes([FileChange(path=tmp_path / "file" / "x.toml", text="")])


def test_a_missing_permission_has_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_changes.os, "access", lambda path, mode: False)
    with pytest.raises(ExporterError, match="no permission to write"):
        apply_changes([FileChange(path=tmp_path / "file.txt", text="")])


def test_a_link_of_the_user_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "shared").write_text("a\n")
    (tmp_path / ".gitignore").symlink_to("shared")
    change = FileChange(path=tmp_path / ".gitignore", text="a\nb\n", before="a\n")
    with pytest.raises(ExporterError, match="gitignore: is a symlink; replace it by a file"):
        apply_changes([change])
    assert (tmp_path / ".gitignore").is_symlink()
