"""The calls of a client on a host."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest

from exporter.cluster import host_run
from exporter.cluster.archives import Archive, HostReply, list_project
from exporter.cluster.host_run import Host, add_part, end_run
from tests.unit.cluster.test_host_environment import make_context


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(
        address="tcp://a:1",
        scratch=tmp_path,
        environments=tmp_path,
        report=lambda _: None,
        is_cancelled=lambda: False,
    )


def send(tmp_path: Path, run: str, content: bytes, sha256: str) -> bytes:
    host_run._FOLDERS.clear()
    worker: Any = SimpleNamespace(local_directory=str(tmp_path))
    middle = len(content) // 2
    add_part(run, sha256, 0, content[:middle], len(content), worker)
    assert not (tmp_path / run / "project.tar").exists()
    problem = add_part(run, sha256, middle, content[middle:], len(content), worker)
    assert (tmp_path / run / "project.tar").exists() is not bool(problem)
    return problem


def test_an_archive_exists_when_its_last_part_has_the_digest(tmp_path: Path) -> None:
    assert send(tmp_path, "run", b"content", hashlib.sha256(b"content").hexdigest()) == b""


def test_another_content_is_refused(tmp_path: Path) -> None:
    problem = send(tmp_path, "run", b"another", hashlib.sha256(b"content").hexdigest())
    assert problem == b"the archive has another digest than its parts"
    (tmp_path / "file").write_text("")
    problem = send(tmp_path / "file", "other", b"content", "0" * 64)
    assert problem.startswith(b"NotADirectoryError")


def test_each_run_has_a_copy_of_the_project(
    tmp_path: Path, host: Host, open_file: Callable[[], BinaryIO]
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "net.py").write_text("code")
    archive = Archive.pack(open_file(), root, list_project(root, ()))
    (content,) = (part for _, part in archive.read_parts())
    copies = []
    for run in ("first", "second"):
        send(tmp_path, run, content, archive.sha256)
        copies.append(host_run._copy_project(make_context(run=run), host))
    first, second = copies
    assert first
    assert second
    assert first != second
    assert (first / "net.py").read_text() == "code"
    assert host_run._copy_project(make_context(run="first"), host) == first
    host_run._FOLDERS["first"] = tmp_path / "first"
    end_run("first")
    assert not first.exists()
    assert second.exists()
    end_run("second")


def test_a_job_without_an_archive_runs_elsewhere(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_run, "_SILENCE", 0.3)
    started = time.monotonic()
    assert host_run._copy_project(make_context(run="third"), host) is None
    assert time.monotonic() - started > 0.3


def test_a_fork_server_without_runs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    starter: Any = SimpleNamespace(close=lambda: closed.append("closed"))
    monkeypatch.setattr(host_run, "_IDLE", 0.0)
    monkeypatch.setattr(host_run, "_STARTERS", {(): host_run._SharedStarter(starter)})
    monkeypatch.setattr(host_run, "_FOLDERS", {"another": Path("copy")})
    end_run("fourth")
    time.sleep(0.2)
    assert not closed
    host_run._FOLDERS.clear()
    end_run("fifth")
    until = time.monotonic() + 5
    while not closed and time.monotonic() < until:
        time.sleep(0.01)
    assert closed == ["closed"]


def test_an_exception_without_a_pickle_reaches_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The errors of pydantic are such exceptions."""

    class LocalError(Exception):
        pass

    def fail(*_: object) -> bytes:
        raise LocalError("no way")

    monkeypatch.setattr("distributed.get_worker", lambda: SimpleNamespace(address="tcp://a:1"))
    (reply, _), message = HostReply.unpack(host_run.run_job("{}")), "ValidationError: "
    assert reply.host == "tcp://a:1"
    assert reply.refusal[0].startswith(message)
    monkeypatch.setattr(host_run.HostRequest, "model_validate_json", lambda _: None)
    monkeypatch.setattr(host_run, "_run_on", fail)
    reply, _ = HostReply.unpack(host_run.run_job("{}"))
    assert reply.refusal == ("LocalError: no way",)
