"""Files are written atomically, and read without waiting and without links."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import (
    empty_regular_file,
    hash_file,
    open_regular_file,
    read_regular_file,
    remove_unfinished_files,
    write_text,
)


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


pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_link(path: Path) -> None:
    path.with_name("target").write_bytes(b"text")
    path.symlink_to("target")


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_sparse_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(40 << 30)


def make_nothing(path: Path) -> None:
    pass


def test_a_regular_file_is_read_and_emptied(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular_file(path, 5) == b"12345"
    with open_regular_file(path) as file:
        assert file.read() == b"12345"
    empty_regular_file(path)
    assert read_regular_file(path, 5) == b""


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_pipe, "is not a regular file"),
        (make_link, "is not a regular file"),
        (make_device, "is not a regular file"),
        (Path.mkdir, "is not a regular file"),
        (make_sparse_file, "has 42949672960 bytes, but at most 5 are possible"),
        (make_nothing, "No such file"),
    ],
)
def test_other_paths_are_refused(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "file"
    make(path)
    with pytest.raises(OSError, match=message) as caught:
        read_regular_file(path, 5)
    assert caught.value.filename == str(path)
    if make is not make_sparse_file:
        with pytest.raises(OSError, match=message):
            empty_regular_file(path)


@pytest.mark.timeout(10)
def test_the_hash_of_a_pipe_or_device_is_refused_and_a_link_is_followed(tmp_path: Path) -> None:
    make_link(tmp_path / "link")
    assert hash_file(tmp_path / "link") == hash_file(tmp_path / "target")
    make_pipe(tmp_path / "pipe")
    make_device(tmp_path / "device")
    for name in ("pipe", "device"):
        with pytest.raises(OSError, match="is not a regular file"):
            hash_file(tmp_path / name)
