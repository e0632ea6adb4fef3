"""`gc` keeps the limits of a remote store, and removes nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.jobs import JobFolder
from exporter.records.record import Record
from exporter.store import StoreLimits
from exporter.store.store_entry import name_entry
from tests.unit.store.cells import PARTS, make_cell
from tests.unit.store.servers import (
    KEY,
    FaultyFiles,
    make_machine,
    make_remote,
    open_folder,
    refuse,
)

WIDE = StoreLimits(size=1 << 40, age=1e9)


@pytest.fixture
def cells(tmp_path: Path) -> list[Record]:
    """Upload three cells, which were used three, two and one hours ago."""
    folder = tmp_path / "one" / "build" / "tiny"
    store = make_machine(tmp_path / "one", make_remote(open_folder(tmp_path / "server"), key=KEY))
    records = []
    for hours, opset in ((3, 9), (2, 10), (1, 11)):
        records.append(make_cell(folder, f"tiny/{opset}/cpu", f"graph{opset}"))
        store.put(records[-1:], JobFolder(folder))
        assert store.finish() == []
        path = tmp_path / "server" / name_entry(records[-1])
        used = path.stat().st_mtime - hours * 3600
        os.utime(path, (used, used))
    return records


def list_cells(tmp_path: Path, cells: list[Record]) -> list[int]:
    """Return the opsets that another machine finds."""
    store = make_machine(tmp_path / "two", make_remote(open_folder(tmp_path / "server")))
    results = store.find_all({cell.cell: PARTS for cell in cells}, lambda _: True)
    return [cell.opset for cell, result in results.items() if result.entry]


def evict(tmp_path: Path, limits: StoreLimits, *, dry_run: bool = False) -> tuple[int, int]:
    remote = make_remote(open_folder(tmp_path / "server"))
    result = remote.evict(limits, dry_run=dry_run)
    return result.cells, result.bytes


def list_server(tmp_path: Path) -> set[str]:
    server = tmp_path / "server"
    return {path.relative_to(server).as_posix() for path in server.rglob("*") if path.is_file()}


def test_old_entries_are_removed_with_their_files(tmp_path: Path, cells: list[Record]) -> None:
    before = list_server(tmp_path)
    assert evict(tmp_path, StoreLimits(size=1 << 40, age=2.5 * 3600), dry_run=True)[0] == 1
    assert list_server(tmp_path) == before
    count, size = evict(tmp_path, StoreLimits(size=1 << 40, age=2.5 * 3600))
    assert count == 1
    removed = before - list_server(tmp_path)
    assert sorted(name.partition("/")[0] for name in removed) == ["blobs", "entries"]
    assert size > len("graph9")  # the graph and the entry; the other files have other users
    assert list_cells(tmp_path, cells) == [10, 11]


def test_wide_limits_remove_nothing(tmp_path: Path, cells: list[Record]) -> None:
    before = list_server(tmp_path)
    assert evict(tmp_path, WIDE) == (0, 0)
    assert list_server(tmp_path) == before


def test_foreign_files_and_recent_uploads_stay(tmp_path: Path, cells: list[Record]) -> None:
    names = ["README", "entries/notes.txt", "blobs/aa/other", f"blobs/aa/{'a' * 64}"]
    for name in names:
        (tmp_path / "server" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "server" / name).write_bytes(b"x")
    evict(tmp_path, StoreLimits(size=0, age=0.0))
    assert list_server(tmp_path) == set(names)
    old = tmp_path / "server" / names[-1]
    os.utime(old, (1e9, 1e9))  # no upload is writing an entry for it
    evict(tmp_path, WIDE)
    assert list_server(tmp_path) == set(names[:-1])


def test_after_an_error_nothing_is_removed(tmp_path: Path, cells: list[Record]) -> None:
    before = list_server(tmp_path)
    for after in range(4):
        faulty = FaultyFiles(open_folder(tmp_path / "server"), refuse, after, kinds=("read",))
        with pytest.raises(OSError, match="Connection refused"):
            make_remote(faulty).evict(StoreLimits(size=0, age=0.0), dry_run=False)
        assert list_server(tmp_path) == before
