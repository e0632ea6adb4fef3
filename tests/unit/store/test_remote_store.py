"""A cell of one machine is restored on another; a wrong or broken remote store is a miss."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import URLError

import fsspec
import pytest

from exporter.cache.states import hash_source
from exporter.jobs import JobFolder
from exporter.records.record import Record
from exporter.store import Store, StoreEntry, store_files
from exporter.store.remote_store import RemoteStore, Requests
from exporter.store.store_entry import SigningKey, name_entry
from exporter.store.store_files import Files, RemoteFiles, open_files
from tests.unit.store.cells import PARTS, everything, make_cell
from tests.unit.store.servers import (
    KEY,
    FaultyFiles,
    hang,
    make_machine,
    make_remote,
    open_folder,
    raise_foreign,
    raise_full,
    refuse,
)

OTHER_KEY = SigningKey(b"another key with enough characters")


def find(store: Store, record: Record) -> StoreEntry | None:
    return store.find_all({record.cell: PARTS}, lambda _: True)[record.cell].entry


def upload(root: Path, remote: RemoteStore, **fields: str) -> Record:
    """Store one cell on the first machine, and return its record."""
    record = make_cell(root / "one" / "build" / "tiny", **fields)
    store = make_machine(root / "one", remote)
    assert store.put([record], JobFolder(root / "one" / "build" / "tiny")) == ""
    assert store.finish() == []
    return record


def restore(root: Path, remote: RemoteStore, record: Record) -> dict[str, bytes]:
    store = make_machine(root / "two", remote)
    entry = find(store, record)
    if entry is None:
        return {}
    store.download([entry])
    folder = root / "two" / "build" / "tiny"
    folder.mkdir(parents=True, exist_ok=True)
    return {} if store.restore(entry, folder) else everything(folder)


@pytest.fixture(params=["file", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    if request.param == "file":
        yield open_folder(tmp_path / "server")
        return
    yield RemoteFiles(f"memory://{tmp_path.name}/cells")
    fsspec.filesystem("memory").rm(tmp_path.name, recursive=True)


@pytest.fixture
def folder(tmp_path: Path) -> Files:
    return open_folder(tmp_path / "server")


def test_another_machine_restores_equal_files(tmp_path: Path, files: Files) -> None:
    record = upload(tmp_path, make_remote(files))
    expected = everything(tmp_path / "one" / "build" / "tiny")
    assert restore(tmp_path, make_remote(files), record) == expected
    # The second lookup needs no server.
    local = make_machine(tmp_path / "two", make_remote(FaultyFiles(files, refuse)))
    assert find(local, record)
    assert local.make_statistics().local_hits == 1
    assert local.take_notes() == []


def test_the_counts_of_a_run(tmp_path: Path, files: Files) -> None:
    one = make_machine(tmp_path / "one", make_remote(files))
    record = make_cell(tmp_path / "one" / "build" / "tiny")
    size = sum(map(len, everything(tmp_path / "one" / "build" / "tiny").values()))
    assert find(one, record) is None
    one.put([record], JobFolder(tmp_path / "one" / "build" / "tiny"))
    one.finish()
    counts = one.make_statistics()
    assert (counts.local_hits, counts.remote_hits, counts.misses) == (0, 0, 1)
    assert (counts.uploaded_cells, counts.uploaded_bytes) == (1, size)
    two = make_machine(tmp_path / "two", make_remote(files))
    entry = find(two, record)
    assert entry is not None
    two.download([entry])
    (tmp_path / "out").mkdir()
    two.restore(entry, tmp_path / "out")
    counts = two.make_statistics()
    assert (counts.local_hits, counts.remote_hits, counts.misses) == (0, 1, 0)
    assert counts.restored_bytes == size
    # Equal files are transferred once.
    assert counts.downloaded_bytes == sum(
        file.size for file in {file.sha256: file for file in entry.files}.values()
    )


def test_a_file_that_exists_is_not_uploaded_again(tmp_path: Path, files: Files) -> None:
    upload(tmp_path, make_remote(files))
    record = make_cell(tmp_path / "one" / "build" / "tiny")
    store = make_machine(tmp_path / "one", make_remote(files))
    store.put([record], JobFolder(tmp_path / "one" / "build" / "tiny"))
    store.finish()
    counts = store.make_statistics()
    assert (counts.uploaded_cells, counts.uploaded_bytes) == (1, 0)


def test_a_changed_file_is_a_miss_and_is_replaced(tmp_path: Path, folder: Files) -> None:
    record = upload(tmp_path, make_remote(folder))
    sha256 = record.artifact.sha256 if record.artifact else ""
    blob = tmp_path / "server" / "blobs" / sha256[:2] / sha256
    blob.write_bytes(b"GRAPH")  # the same size
    remote = make_remote(folder)
    assert restore(tmp_path, remote, record) == {}
    assert "1 entry or file is ignored: 1 damaged; their cells run" in " ".join(remote.take_notes())
    # The cell runs and is stored: its upload replaces the damaged file.
    store = make_machine(tmp_path / "one", remote)
    store.put([record], JobFolder(tmp_path / "one" / "build" / "tiny"))
    assert store.finish() == []
    assert blob.read_bytes() == b"graph"
    assert restore(tmp_path, make_remote(folder), record)


def test_a_lost_file_is_a_miss(tmp_path: Path, folder: Files) -> None:
    record = upload(tmp_path, make_remote(folder))
    sha256 = record.artifact.sha256 if record.artifact else ""
    (tmp_path / "server" / "blobs" / sha256[:2] / sha256).unlink()
    assert restore(tmp_path, make_remote(folder), record) == {}


@pytest.mark.parametrize("content", [b"", b"unsigned\n", b"unsigned\n{}", b"\xff" * 100])
def test_a_damaged_entry_is_a_miss(tmp_path: Path, folder: Files, content: bytes) -> None:
    record = upload(tmp_path, make_remote(folder))
    [entry] = (tmp_path / "server" / "entries").rglob("*.json")
    entry.write_bytes(content)
    remote = make_remote(folder)
    assert restore(tmp_path, remote, record) == {}
    [note] = remote.take_notes()
    assert "1 entry or file is ignored: 1 damaged" in note


def test_an_entry_of_other_inputs_is_a_miss(tmp_path: Path, folder: Files) -> None:
    """A person who can write to the server cannot move a result to another cell."""
    record = upload(tmp_path, make_remote(folder))
    other = record.model_copy(update={"fingerprint": {**PARTS, "entry": "changed"}})
    store = make_machine(tmp_path / "two", make_remote(folder))
    moved = tmp_path / "server" / name_entry(other)
    moved.parent.mkdir(parents=True)
    [entry] = (tmp_path / "server" / "entries").rglob("*.json")
    entry.rename(moved)
    results = store.find_all({record.cell: other.fingerprint}, lambda _: True)
    assert results[record.cell].entry is None
    assert "1 of another cell" in store.take_notes()[0]


def test_old_bytes_of_a_server_are_a_miss(tmp_path: Path, folder: Files) -> None:
    """A cache between the server and this machine returns the files of an earlier upload."""
    record = upload(tmp_path, make_remote(folder))
    sha256 = record.artifact.sha256 if record.artifact else ""
    blob = tmp_path / "server" / "blobs" / sha256[:2] / sha256
    current, (entry,) = blob.read_bytes(), (tmp_path / "server" / "entries").rglob("*.json")
    blob.write_bytes(current[:-1])
    assert restore(tmp_path, make_remote(folder, is_read_only=True), record) == {}
    blob.write_bytes(current)
    entry.write_bytes(b"unsigned\n" + entry.read_bytes().replace(b'"format": 3', b'"format": 2'))
    assert restore(tmp_path / "later", make_remote(folder), record) == {}


@pytest.mark.parametrize(
    ("writer", "reader", "note"),
    [
        (KEY, KEY, None),
        (KEY, None, None),
        (None, None, None),
        (None, KEY, "1 not signed"),
        (OTHER_KEY, KEY, "1 signed with another key or changed"),
    ],
)
def test_only_entries_with_the_key_of_the_reader_are_restored(
    tmp_path: Path,
    folder: Files,
    writer: SigningKey | None,
    reader: SigningKey | None,
    note: str | None,
) -> None:
    record = upload(tmp_path, make_remote(folder, key=writer))
    remote = make_remote(folder, key=reader)
    assert bool(restore(tmp_path, remote, record)) == (note is None)
    notes = remote.take_notes()
    assert len(notes) == (note is not None)
    assert (note or "") in " ".join(notes)


def test_a_signed_entry_with_a_changed_record_is_a_miss(tmp_path: Path, folder: Files) -> None:
    """An attacker can compute the hash of an entry, but not its signature."""
    signed = upload(tmp_path, make_remote(folder, key=KEY))
    [entry] = (tmp_path / "server" / "entries").rglob("*.json")
    signature = entry.read_bytes().partition(b"\n")[0]
    upload(tmp_path, make_remote(folder), content="poisoned graph")
    forged = entry.read_bytes().partition(b"\n")[2]
    entry.write_bytes(signature + b"\n" + forged)
    remote = make_remote(folder, key=KEY)
    assert restore(tmp_path, remote, signed) == {}
    assert "1 signed with another key or changed" in remote.take_notes()[0]
    assert restore(tmp_path, make_remote(folder), signed)


def test_a_flaky_cell_is_removed(tmp_path: Path, folder: Files) -> None:
    record = upload(tmp_path, make_remote(folder))
    store = make_machine(tmp_path / "one", make_remote(folder))
    flaky = record.model_copy(update={"flaky": ("pass", "fail")})
    store.put([flaky], JobFolder(tmp_path / "one" / "build" / "tiny"))
    store.finish()
    assert restore(tmp_path, make_remote(folder), record) == {}


def test_a_read_only_store_is_not_changed(tmp_path: Path, folder: Files) -> None:
    upload(tmp_path, make_remote(folder, is_read_only=True))
    assert not (tmp_path / "server").exists()


def test_an_old_entry_that_is_used_becomes_new(
    tmp_path: Path, folder: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = upload(tmp_path, make_remote(folder, key=KEY))
    [entry] = (tmp_path / "server" / "entries").rglob("*.json")
    before = entry.read_bytes(), entry.stat().st_mtime_ns
    for age, is_same in ((3600.0, True), (-1.0, False)):
        monkeypatch.setattr("exporter.store.remote_store._REFRESH_AGE", age)
        # A reader without the key keeps the signature.
        store = make_machine(tmp_path / f"age{age}", make_remote(folder))
        found = find(store, record)
        assert found is not None
        store.download([found])
        assert store.finish() == []
        assert (entry.stat().st_mtime_ns == before[1]) == is_same
        assert entry.read_bytes() == before[0]


def test_a_missing_server_folder_is_empty(tmp_path: Path, files: Files) -> None:
    remote = make_remote(files)
    store = make_machine(tmp_path / "one", remote)
    record = make_cell(tmp_path / "one" / "build" / "tiny")
    assert find(store, record) is None
    assert store.take_notes() == []
    upload(tmp_path, remote)


@pytest.mark.parametrize("fault", [refuse, raise_foreign])
def test_a_broken_server_is_a_miss_with_one_message(
    tmp_path: Path, folder: Files, fault: Callable[[], None]
) -> None:
    broken = FaultyFiles(folder, fault)
    store = make_machine(tmp_path / "one", make_remote(broken))
    cells = [make_cell(tmp_path / "c", f"tiny/{opset}/cpu") for opset in range(9, 20)]
    results = store.find_all({cell.cell: PARTS for cell in cells}, lambda _: True)
    assert not any(result.entry for result in results.values())
    [note] = store.take_notes()
    reason = "Connection refused" if fault is refuse else "no credentials"
    message = f"store: test://cells: it is not used any more in this run: {reason}; run"
    assert note.startswith(message)
    assert find(store, cells[0]) is None
    # Not once for each cell; threads that already wait may still send their request.
    assert broken.calls <= 8 + 3
    store.put(cells, JobFolder(tmp_path / "c"))
    assert store.finish() == []


def test_a_full_server_is_one_message(tmp_path: Path, folder: Files) -> None:
    record = upload(tmp_path, make_remote(folder))
    full = make_remote(FaultyFiles(folder, raise_full, kinds=("write",)))
    store = make_machine(tmp_path / "two", full)
    assert find(store, record)
    for opset in range(9, 20):
        cell = make_cell(tmp_path / "two" / "build" / "tiny", f"tiny/{opset}/cpu", str(opset))
        assert store.put([cell], JobFolder(tmp_path / "two" / "build" / "tiny")) == ""
    [note] = store.finish()
    assert "not used any more in this run: No space left on device" in note
    assert store.make_statistics().uploaded_cells == 0


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_server_that_hangs_costs_at_most_the_deadline(
    tmp_path: Path, folder: Files, after: int
) -> None:
    record = upload(tmp_path, make_remote(folder))
    remote = make_remote(FaultyFiles(folder, hang, after=after), deadline=0.2)
    start = time.monotonic()
    restore(tmp_path, remote, record)
    store = make_machine(tmp_path / "one", remote)
    store.put([record], JobFolder(tmp_path / "one" / "build" / "tiny"))
    [note] = store.finish()
    assert time.monotonic() - start < 0.2 + 1.0  # the second is for the other work
    assert remote.waited_seconds < 0.4
    assert "the time limit of 0.2 s is exceeded" in note


def test_a_slow_server_is_used_until_the_deadline(tmp_path: Path, folder: Files) -> None:
    """The server responds to each request, but a run with many requests would take too long."""
    slow = FaultyFiles(folder, lambda: time.sleep(0.05))
    remote = make_remote(slow, deadline=0.5)
    cells = [make_cell(tmp_path / "c", f"m{index}/18/cpu") for index in range(400)]
    store = make_machine(tmp_path / "one", remote)
    start = time.monotonic()
    store.find_all({cell.cell: PARTS for cell in cells}, lambda _: True)
    assert 0.4 < time.monotonic() - start < 1.5
    [note] = store.take_notes()
    assert "the time limit of 0.5 s is exceeded" in note


def test_the_program_ends_without_a_thread_that_hangs(tmp_path: Path) -> None:
    program = (
        "from exporter.store.remote_store import Requests\n"
        "from tests.unit.store.servers import hang\n"
        "requests = Requests(0.1)\n"
        "assert requests.wait([requests.submit(hang)]) == []\n"
    )
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root, timeout=30)


def test_the_test_of_the_access(folder: Files) -> None:
    assert make_remote(folder).test_access() == ""
    assert make_remote(FaultyFiles(folder, raise_foreign)).test_access() == "no credentials"
    hanging = make_remote(FaultyFiles(folder, hang), deadline=0.1)
    assert hanging.test_access() == "the time limit of 0.1 s is exceeded"


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """Return the URL of a web server for the folder `server`."""
    handler = partial(_QuietHandler, directory=str(tmp_path / "server"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def open_mirror(url: str) -> RemoteStore:
    return RemoteStore("store", open_files(url), is_read_only=True, deadline=20.0)


def test_a_web_server_is_a_mirror(tmp_path: Path, folder: Files, web: str) -> None:
    record = upload(tmp_path, make_remote(folder))
    expected = everything(tmp_path / "one" / "build" / "tiny")
    assert restore(tmp_path, open_mirror(web), record) == expected
    missing = make_cell(tmp_path / "c", "tiny/9/cpu")
    mirror = open_mirror(web)
    assert find(make_machine(tmp_path / "three", mirror), missing) is None
    assert mirror.take_notes() == []


def test_the_access_to_a_web_server(tmp_path: Path, web: str) -> None:
    assert open_mirror(web).test_access() == "HTTP status 404"
    (tmp_path / "server").mkdir()
    assert open_mirror(web).test_access() == ""


def test_a_server_cannot_fill_the_disk(
    tmp_path: Path, folder: Files, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = upload(tmp_path, make_remote(folder))
    for blob in (tmp_path / "server/blobs").rglob("*"):
        if blob.is_file():
            with blob.open("ab") as file:
                file.truncate(1 << 24)
    sizes: list[int] = []

    def hash_and_measure(path: Path) -> str:
        sizes.append(path.stat().st_size)
        return hash_source(path)

    monkeypatch.setattr(store_files, "hash_source", hash_and_measure)
    for remote in (open_mirror(web), make_remote(folder)):
        assert restore(tmp_path, remote, record) == {}
        assert "ignored" in " ".join(remote.take_notes())
    assert max(sizes, default=0) < 1 << 16


class _DrippingHandler(_QuietHandler):
    """Send a byte of an endless response from time to time."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):  # the client has closed the connection
            while True:
                self.wfile.write(b"x")
                time.sleep(0.01)


def test_a_server_that_drips_is_one_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_files, "_WEB_TIMEOUT", 0.1)
    with ThreadingHTTPServer(("127.0.0.1", 0), _DrippingHandler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        files = open_files(f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(TimeoutError):
            files.fetch("blobs/1", tmp_path / "blob", 100)
        requests = Requests(60.0)
        requests.wait([requests.submit(files.read, "entry")])
        server.shutdown()
    assert requests.problem == "timed out"


def test_a_server_that_hangs_costs_one_time_limit() -> None:
    requests = Requests(60.0)

    def hang_once(_: object) -> None:
        raise URLError(TimeoutError("timed out"))

    requests.wait([requests.submit(hang_once, 1)])
    assert "timed out" in requests.problem
