"""Lost hosts, and replies that are no replies."""

from __future__ import annotations

import hashlib
import io
from collections import Counter, deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from exporter.cluster import archives, dask_engine
from exporter.cluster.archives import HostReply
from exporter.cluster.dask_engine import _Attempt, _ClusterRun, _Received
from exporter.core.errors import ExitCode, ExporterError
from exporter.pipeline.engine import ExitKind, Task
from tests.unit.pipeline import builders


def make_attempt(tmp_path: Path) -> _Attempt:
    task = Task(job=builders.job(tmp_path, builders.spec()), seconds=60)
    return _Attempt(number=1, task=task)


def test_a_second_lost_host_makes_the_job_the_culprit(tmp_path: Path) -> None:
    attempt = make_attempt(tmp_path)
    for host in ("a", "b"):
        assert not attempt.is_culprit
        attempt.host, attempt.announcement = host, builders.announcement(())
        assert attempt.lose_host() == host
    assert attempt.is_culprit
    assert attempt.avoided == {"a", "b"}


def test_an_end_before_the_first_stage_is_not_the_fault_of_the_job(tmp_path: Path) -> None:
    attempt = make_attempt(tmp_path)
    assert attempt.lose_host() == ""
    for host in "abc":
        attempt.host = host
        attempt.lose_host()
    assert not attempt.is_culprit


def make_reply(**values: Any) -> HostReply:
    return HostReply(host="a", exit_kind=ExitKind.EXITED, **values)


def test_a_reply_begins_with_json() -> None:
    reply = make_reply(seconds=1.5)
    assert HostReply.unpack(reply.pack(b"files\n")) == (reply, b"files\n")


@pytest.mark.parametrize(
    "data",
    [
        None,
        "text",
        b"",
        b"no json\n",
        b'{"host": "a", "exit_kind": "unknown"}\n',
        b'{"host": "a", "size": -1}\n',
        b'{"host": "a", "more": 1}\n',
    ],
)
def test_another_reply_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match=r"reply|validation error"):
        HostReply.unpack(data)


def test_a_reply_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_reply().pack(b"0" * 1000)
    HostReply.unpack(data)
    monkeypatch.setattr(archives, "PART_SIZE", 100)
    monkeypatch.setattr(archives, "CELL_LIMIT", 100)
    with pytest.raises(ValueError, match="another format"):
        HostReply.unpack(data)


def receive(content: bytes, limit: int = 1000, **values: Any) -> bytes:
    """Receive an archive in parts of four bytes from a host with this content."""
    parts = [content[start : start + 4] for start in range(0, len(content), 4)]
    calls = iter(parts[1:])
    run = object.__new__(_ClusterRun)
    run._client = SimpleNamespace(
        run=lambda _function, *_values, workers: {workers[0]: next(calls, b"more")}
    )
    reply = make_reply(
        **{
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "name": "n",
            **values,
        }
    )
    file = io.BytesIO()
    run._receive_archive(reply, parts[0], file, limit)
    return file.getvalue()


def test_an_archive_is_received_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert receive(b"0123456789") == b"0123456789"
    monkeypatch.setattr(dask_engine, "PART_SIZE", 3)
    with pytest.raises(ValueError, match="has more than 10 bytes"):
        receive(b"0123456789")


def test_an_archive_of_another_size_or_digest_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 9 bytes"):
        receive(b"0123456789", size=9)
    with pytest.raises(ValueError, match="more than 5 bytes"):
        receive(b"0123456789", limit=5)
    with pytest.raises(ValueError, match="another digest"):
        receive(b"0123456789", sha256="0" * 64)


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_job_that_ends_together_with_an_error_keeps_its_result(
    tmp_path: Path, is_lost: bool
) -> None:
    comm = pytest.importorskip("distributed.comm")
    error = comm.CommClosedError() if is_lost else ExporterError(ExitCode.ENVIRONMENT, "no host")
    attempt = make_attempt(tmp_path)
    run: Any = object.__new__(_ClusterRun)
    run._ended, run._waiting, run._running, run._count = deque(), deque(), {}, 0
    run._label, run._client_facts, run._client, run._hosts = "dask", Mock(), Mock(), Mock()
    run._submit_waiting = run._end_run = Mock()
    run._handle_news = lambda _: (run._ended.append(attempt.make_result(ExitKind.EXITED)), fail())

    def fail() -> None:
        raise error

    results = run.run(deque([attempt.task]))
    assert next(results).job is attempt.task.job
    with pytest.raises(ExporterError, match="is lost, and 1 job did not" if is_lost else "no host"):
        next(results)


def test_a_host_with_invalid_replies_is_refused_after_three(tmp_path: Path) -> None:
    refused: list[tuple[str, tuple[str, ...]]] = []
    run = object.__new__(_ClusterRun)
    run._invalid, run._waiting, run._running = Counter(), deque(), {}
    run._on_note = lambda _: None
    run._client = SimpleNamespace(cancel=lambda *_, **__: None)
    run._hosts = SimpleNamespace(refuse=lambda *values: refused.append(values))
    # A lost connection says nothing about the host.
    for is_invalid in (True, False, True, False, False, True, True):
        assert len(refused) == (sum(run._invalid.values()) >= 3)
        attempt = run._running["key"] = make_attempt(tmp_path)
        received = _Received(key="key", host="a", problem="no json", is_invalid=is_invalid)
        run._handle_received(received, attempt)
        assert "a" in attempt.avoided
    assert refused == [("a", ("invalid replies: no json",))]
