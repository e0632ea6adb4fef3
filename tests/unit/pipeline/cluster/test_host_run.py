"""The calls of a client on a host."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest

from exporter.pipeline.cluster import host_run
from exporter.pipeline.cluster.archives import Archive, list_project
from exporter.pipeline.cluster.host_run import Host, add_part, end_run, has_archive
from tests.unit.pipeline.cluster.test_host_environment import make_context


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(
        address="tcp://a:1",
        archives=tmp_path / "exporter",
        scratch=tmp_path,
        report=lambda _: None,
        is_cancelled=lambda: False,
    )


def send(tmp_path: Path, content: bytes, sha256: str) -> bytes:
    worker: Any = SimpleNamespace(local_directory=str(tmp_path / "worker"))
    assert not has_archive(sha256, worker)
    middle = len(content) // 2
    add_part(sha256, 0, content[:middle], len(content), worker)
    assert not has_archive(sha256, worker)
    problem = add_part(sha256, middle, content[middle:], len(content), worker)
    assert bool(has_archive(sha256, worker)) is not bool(problem)
    return problem


def test_an_archive_exists_when_its_last_part_has_the_digest(tmp_path: Path) -> None:
    assert send(tmp_path, b"content", hashlib.sha256(b"content").hexdigest()) == b""


def test_another_content_is_refused(tmp_path: Path) -> None:
    problem = send(tmp_path, b"another", hashlib.sha256(b"content").hexdigest())
    assert problem == b"the archive has another digest than its parts"
    (tmp_path / "exporter").rmdir()
    (tmp_path / "exporter").write_text("a file")
    assert send(tmp_path, b"content", "0" * 64).startswith(b"FileExistsError")


def test_each_run_has_a_copy_of_the_project(
    tmp_path: Path, host: Host, open_file: Callable[[], BinaryIO]
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "net.py").write_text("code")
    archive = Archive.pack(open_file(), root, list_project(root, ()))
    (content,) = (part for _, part in archive.read_parts())
    send(tmp_path, content, archive.sha256)
    first, second = (
        host_run._copy_project(make_context(run=run, archive=archive.sha256), host)
        for run in ("first", "second")
    )
    assert first
    assert second
    assert first != second
    assert (first / "net.py").read_text() == "code"
    assert host_run._copy_project(make_context(run="first", archive=archive.sha256), host) == first
    end_run("first")
    assert not first.exists()
    assert second.exists()
    end_run("second")


def test_a_job_without_an_archive_runs_elsewhere(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_run, "_SILENCE", 0.3)
    started = time.monotonic()
    assert host_run._copy_project(make_context(run="third", archive="0" * 64), host) is None
    assert time.monotonic() - started > 0.3
