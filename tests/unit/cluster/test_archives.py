"""Archives of projects and of the files of jobs."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from exporter.cluster import archives
from exporter.cluster.archives import (
    Archive,
    list_project,
    list_results,
    move_files,
    read_targets,
    unpack,
)
from exporter.core.errors import ExporterError
from exporter.jobs import JobFolder


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


Pack = Callable[..., Archive]


@pytest.fixture
def pack(open_file: Callable[[], BinaryIO]) -> Pack:
    """Return a function that packs a project without the content of some folders."""
    return lambda root, *skipped: Archive.pack(open_file(), root, list_project(root, skipped))


def extract(archive: Archive, target: Path) -> list[str]:
    archive.file.seek(0)
    unpack(archive.file, target, has_links=True)
    return sorted(path.relative_to(target).as_posix() for path in target.rglob("*"))


def make_tar(*members: tuple[str, bytes, bytes]) -> io.BytesIO:
    """Return an archive of members with a name, a type and a content."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(content), "18.onnx"
            tar.addfile(info, io.BytesIO(content))
    file.seek(0)
    return file


def test_all_files_travel_except_those_of_other_programs(tmp_path: Path, pack: Pack) -> None:
    root = tmp_path / "project"
    for name in ("manifests/net.py", ".git/HEAD", "build/net/18.onnx", "venv/pyvenv.cfg"):
        write(root / name)
    write(root / "manifests/__pycache__/net.pyc")
    write(root / ".hidden/weights.bin", "w")
    # The folders remain in lists of names, which a model can read.
    assert extract(pack(root, root / "build"), tmp_path / "copy") == [
        *(".git", ".hidden", ".hidden/weights.bin", "build"),
        *("manifests", "manifests/net.py", "venv"),
    ]
    assert (tmp_path / "copy/.hidden/weights.bin").read_text() == "w"


def test_equal_projects_at_other_places_have_equal_archives(tmp_path: Path, pack: Pack) -> None:
    for place in ("a", "b"):
        write(tmp_path / place / "project/data/x.bin", "content")
    first, second = (pack(tmp_path / place / "project") for place in ("a", "b"))
    assert (first.sha256, first.size) == (second.sha256, second.size)
    write(tmp_path / "b/project/data/x.bin", "another")
    assert pack(tmp_path / "b/project").sha256 != first.sha256


def test_modes_and_links_travel(tmp_path: Path, pack: Pack) -> None:
    target = write(tmp_path / "data.bin", "1")
    root = tmp_path / "project"
    write(root / "run.sh").chmod(0o755)
    (root / "inside.sh").symlink_to("run.sh")
    (root / "outside.bin").symlink_to(target)
    targets = read_targets(root, list_project(root, ()))
    assert list(targets) == ["outside.bin"]
    extract(pack(root), tmp_path / "copy")
    assert (tmp_path / "copy/inside.sh").readlink() == Path("run.sh")
    assert (tmp_path / "copy/run.sh").stat().st_mode & 0o777 == 0o755
    target.write_text("2")
    assert read_targets(root, list_project(root, ())) != targets


def test_a_large_archive_is_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Pack
) -> None:
    monkeypatch.setattr(archives, "PART_SIZE", 4096)
    write(tmp_path / "project/weights.bin", "0123456789" * 1000)
    archive = pack(tmp_path / "project")
    parts = dict(archive.read_parts())
    assert list(parts) == [0, 4096, 8192, 12288, 16384]
    assert len(b"".join(parts.values())) == archive.size


@pytest.mark.parametrize("limit", [archives.PART_SIZE, 10])
def test_a_file_that_grows_or_vanishes_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, open_file: Callable[[], BinaryIO]
) -> None:
    monkeypatch.setattr(archives, "PART_SIZE", limit)
    root = tmp_path / "project"
    log = write(root / "export.log", "line\n" * 10)
    read = tarfile.TarFile.addfile

    def grow(tar: tarfile.TarFile, info: tarfile.TarInfo, file: object = None) -> None:
        log.write_text("line\n" * 20)
        read(tar, info, file)  # type: ignore[arg-type]

    monkeypatch.setattr(tarfile.TarFile, "addfile", grow)
    paths = [root / "vanished.tmp", log]
    archive = Archive.pack(open_file(), root, paths)
    assert extract(archive, tmp_path / "copy") == ["export.log"]
    assert (tmp_path / "copy/export.log").read_text() == "line\n" * 10


def test_a_file_that_cannot_be_read_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Pack
) -> None:
    write(tmp_path / "project/secret.bin")

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(archives, "open_regular_file", refuse)
    with pytest.raises(ExporterError, match=r"secret.bin: cannot be copied .* denied; change"):
        pack(tmp_path / "project")


def test_links_and_huge_files_of_a_job_stay_on_the_host(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    for name in ("job.json", "18.onnx", "records/18.cpu.json", "logs/18.log"):
        write(folder.path / name)
    (folder.path / "link.onnx").symlink_to("/etc/passwd")
    for path in (folder.records / "7.cpu.json", folder.reference):
        with path.open("wb") as file:
            file.truncate(2 << 30)
    names = {path.relative_to(folder.path).as_posix() for path in list_results(folder)}
    assert names == {"18.onnx", "records/18.cpu.json", "logs/18.log"}
    (tmp_path / "link").symlink_to(folder.path)
    assert not list(list_results(JobFolder(tmp_path / "link")))


@pytest.mark.parametrize("name", ["../other/18.onnx", "/etc/18.onnx", "records/../../x", ""])
def test_a_path_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not inside the folder"):
        unpack(make_tar((name, tarfile.REGTYPE, b"")), tmp_path / "job")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, b"S"])
def test_a_link_or_a_pipe_of_a_host_is_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(ValueError, match=r"neither a file nor a folder|damaged"):
        unpack(make_tar(("link", kind, b"")), tmp_path / "job")
    assert not (tmp_path / "job/link").exists()


@pytest.mark.parametrize(
    "content", [b"", b"no archive", make_tar(("a", b"0", b"x" * 99)).read()[:600]]
)
def test_a_damaged_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ValueError, match="the archive is damaged"):
        unpack(io.BytesIO(content), tmp_path / "job")


def test_a_file_twice_is_refused(tmp_path: Path) -> None:
    twice = [("18.onnx", tarfile.REGTYPE, b"content")] * 2
    with pytest.raises(ValueError, match="the archive is damaged"):
        unpack(make_tar(*twice), tmp_path / "job")
    unpack(make_tar(*twice[:1]), tmp_path / "sound")
    assert (tmp_path / "sound/18.onnx").read_bytes() == b"content"


def test_files_are_moved_without_the_job(tmp_path: Path) -> None:
    for name in ("new/job.json", "new/records/18.cpu.json", "old/job.json", "old/records/17.json"):
        write(tmp_path / name, name)
    move_files(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old/job.json").read_text() == "old/job.json"
    names = sorted(path.name for path in (tmp_path / "old/records").iterdir())
    assert names == ["17.json", "18.cpu.json"]
