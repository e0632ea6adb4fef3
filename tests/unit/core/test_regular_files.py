"""Files are read without waiting, without links and up to a limit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.core.files import empty_regular_file, hash_file, open_regular_file, read_regular_file

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
