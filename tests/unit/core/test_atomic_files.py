from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import remove_unfinished_files, write_text


def test_the_bytes_are_written_and_no_other_file_remains(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.md"
    write_text(path, "one\ntwo é\n")
    write_text(path, "three\n")
    assert path.read_bytes() == b"three\n"
    assert list(path.parent.iterdir()) == [path]


def test_a_link_is_replaced_and_its_target_is_unchanged(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    link = tmp_path / "a.md"
    link.symlink_to(target)
    write_text(link, "new")
    assert target.read_text() == "mine"
    assert not link.is_symlink()
    assert link.read_text() == "new"


def test_the_error_contains_the_reason(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(ExporterError, match="cannot be written") as caught:
        write_text(blocked / "a.md", "x")
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
    folder = tmp_path / "a.md"
    (folder / "full").mkdir(parents=True)
    with pytest.raises(ExporterError, match=r"a\.md: cannot be written"):
        write_text(folder, "x")
    assert not list(tmp_path.glob(".*"))


def test_only_unfinished_files_of_dead_processes_are_removed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    begun = tmp_path / f".page.md.{ended.pid}.fresh"
    others = [
        tmp_path / f".page.md.{os.getpid()}.fresh",  # at work
        tmp_path / ".page.md.fresh",
        tmp_path / ".page.md.0.fresh",
        tmp_path / f"page.md.{ended.pid}.fresh",
    ]
    for path in (begun, *others):
        path.touch()
    remove_unfinished_files(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(others)
    remove_unfinished_files(tmp_path / "nowhere")
