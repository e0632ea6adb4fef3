"""Files of a job that a host sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exporter.core.errors import ExporterError
from exporter.pipeline.cluster.client_files import FileSender, LostHost, move_files, receive_files
from exporter.pipeline.cluster.host_folder import HostFolder, hash_content
from exporter.pipeline.cluster.protocol import HostReply, SentFile
from exporter.pipeline.engine import ExitKind


class FakeClient:
    """Calls the functions of a host in this process."""

    def __init__(self, folder: Path) -> None:
        self.local_directory = str(folder / "worker")
        self.calls: list[str] = []

    def run(self, function: Any, *arguments: Any, workers: list[str]) -> dict[str, Any]:
        self.calls.append(function.__name__)
        needs_worker = "dask_worker" in function.__code__.co_varnames
        more = {"dask_worker": self} if needs_worker else {}
        return {workers[0]: function(*arguments, **more)}


def make_reply(folder: Path, *files: SentFile) -> HostReply:
    return HostReply(host="h", exit_kind=ExitKind.EXITED, folder=str(folder), files=files)


def make_file(name: str, content: bytes, sha256: str = "", *, inline: bool = True) -> SentFile:
    return SentFile(
        name=name,
        sha256=sha256 or hash_content(content),
        size=len(content),
        content=content if inline else None,
    )


def test_files_are_written_with_their_folders(tmp_path: Path) -> None:
    reply = make_reply(tmp_path, make_file("records/18.cpu.json", b"{}"), make_file("18.onnx", b""))
    receive_files(None, "", reply, tmp_path / "job")
    assert (tmp_path / "job/records/18.cpu.json").read_bytes() == b"{}"
    assert (tmp_path / "job/18.onnx").read_bytes() == b""


def test_a_large_file_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.pipeline.cluster.host_run.PART_SIZE", 4)
    (tmp_path / "host").mkdir()
    (tmp_path / "host/weights.data").write_bytes(b"0123456789")
    client = FakeClient(tmp_path)
    file = make_file("weights.data", b"0123456789", inline=False)
    receive_files(client, "a", make_reply(tmp_path / "host", file), tmp_path / "job")
    assert (tmp_path / "job/weights.data").read_bytes() == b"0123456789"
    assert client.calls == ["read_part"] * 3


def test_a_file_that_the_host_lost_counts_as_a_lost_host(tmp_path: Path) -> None:
    reply = make_reply(tmp_path, make_file("weights.data", b"0", inline=False))
    with pytest.raises(LostHost, match=r"weights.data: cannot be read"):
        receive_files(FakeClient(tmp_path), "a", reply, tmp_path / "job")


def test_a_file_with_another_digest_is_refused(tmp_path: Path) -> None:
    reply = make_reply(tmp_path, make_file("18.onnx", b"changed", hash_content(b"content")))
    with pytest.raises(LostHost, match=r"18.onnx: has another digest"):
        receive_files(None, "", reply, tmp_path / "job")
    assert not (tmp_path / "job/18.onnx").exists()


@pytest.mark.parametrize("name", ["../other/18.onnx", "/etc/18.onnx", "records/../../x", ""])
def test_a_path_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LostHost, match="is not in the folder of the job"):
        receive_files(None, "", make_reply(tmp_path, make_file(name, b"")), tmp_path / "job")


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "job").mkdir()
    (tmp_path / "job/records").symlink_to(tmp_path / "elsewhere")
    reply = make_reply(tmp_path, make_file("records/18.cpu.json", b"{}"))
    with pytest.raises(LostHost, match="is in a linked folder"):
        receive_files(None, "", reply, tmp_path / "job")
    assert not any((tmp_path / "elsewhere").iterdir())


def test_only_missing_files_are_sent(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"weights")
    first, second = hash_content(b"weights"), hash_content(b"list")
    client = FakeClient(tmp_path)
    sender = FileSender(client, {first: path, second: b"list"}, "run")
    sender.send([first, second], "a")
    sender.send([first, second], "a")
    assert client.calls == ["list_missing", "add_part", "add_part", "list_missing"]
    host = HostFolder(tmp_path / "exporter")
    assert host.find_blob(first).read_bytes() == b"weights"


def test_a_file_that_changed_after_it_was_listed_ends_the_run(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"changed")
    digest = hash_content(b"weights")
    with pytest.raises(ExporterError, match=r"weights.bin: cannot be copied to a: WrongDigest"):
        FileSender(FakeClient(tmp_path), {digest: path}, "run").send([digest], "a")


def test_files_of_this_machine_are_moved_without_the_job(tmp_path: Path) -> None:
    for name in ("new/job.json", "new/records/18.cpu.json", "old/job.json", "old/records/17.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    move_files(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old/job.json").read_text() == "old/job.json"
    assert sorted(path.name for path in (tmp_path / "old/records").iterdir()) == [
        "17.json",
        "18.cpu.json",
    ]
    assert not (tmp_path / "new").exists()
