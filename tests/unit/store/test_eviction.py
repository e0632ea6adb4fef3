"""The store stays within its limits and evicts the least recently used entries first."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from exporter.jobs import JobFolder
from exporter.records.record import Record
from exporter.store import Store, StoreLimits
from exporter.store.store_entry import name_entry
from tests.unit.store.cells import PARTS, everything, make_cell, make_store

HOUR = 3600.0
SHARED = sum(len(b) for b in (b"weights", b"what PyTorch says", b"in", b"out", b"kept"))


def store_cell(root: Path, opset: int, hours_ago: float, content: str = "x" * 1000) -> Record:
    folder = root / f"made-{opset}"
    record = make_cell(folder, f"tiny/{opset}/cpu", content=f"{opset}{content}")
    store = make_store(root)
    store.put([record], JobFolder(folder))
    then = time.time() - hours_ago * HOUR
    os.utime(store.path / name_entry(record), (then, then))
    return record


def list_cells(store: Store, *records: Record) -> list[int]:
    return [r.cell.opset for r in records if store.find(r.cell, PARTS, lambda _: True).entry]


def limited(root: Path, *, size: int = 1 << 30, hours: float = 1000) -> Store:
    return make_store(root, StoreLimits(size=size, age=hours * HOUR))


def test_the_least_recently_used_entry_is_evicted_first(tmp_path: Path) -> None:
    records = [store_cell(tmp_path, opset, hours) for opset, hours in ((17, 2), (18, 9), (19, 5))]
    store = limited(tmp_path, size=2002 * 1 + SHARED + 10)
    freed = store.evict()
    assert list_cells(store, *records) == [17, 19]
    assert (freed.cells, freed.remaining) == (1, 2004 + SHARED)


def test_a_restore_is_a_use(tmp_path: Path) -> None:
    records = [store_cell(tmp_path, opset, hours) for opset, hours in ((17, 2), (18, 9), (19, 5))]
    entry = make_store(tmp_path).find(records[1].cell, PARTS, lambda _: True).entry
    assert entry is not None
    (tmp_path / "out").mkdir()
    assert make_store(tmp_path).restore(entry, tmp_path / "out") == ""
    store = limited(tmp_path, size=2004 + SHARED)
    store.evict()
    assert list_cells(store, *records) == [17, 18]


def test_old_entries_are_evicted_below_the_size_limit(tmp_path: Path) -> None:
    records = [store_cell(tmp_path, opset, hours) for opset, hours in ((17, 2), (18, 9), (19, 5))]
    store = limited(tmp_path, hours=4)
    assert store.evict().cells == 2
    assert list_cells(store, *records) == [17]


def test_shared_files_stay_and_others_are_removed(tmp_path: Path) -> None:
    records = [store_cell(tmp_path, opset, hours) for opset, hours in ((17, 2), (18, 9))]
    blobs = tmp_path / "store/blobs"
    before = {p.name for p in blobs.rglob("*") if p.is_file()}
    store = limited(tmp_path, hours=4)
    store.evict()
    after = {p.name for p in blobs.rglob("*") if p.is_file()}
    assert len(before - after) == 1
    entry = store.find(records[0].cell, PARTS, lambda _: True).entry
    assert entry is not None
    (tmp_path / "out").mkdir()
    assert store.restore(entry, tmp_path / "out") == ""
    assert everything(tmp_path / "out") == everything(tmp_path / "made-17")


def test_a_clock_that_is_wrong_evicts_no_entry_in_use(tmp_path: Path) -> None:
    records = [store_cell(tmp_path, opset, hours) for opset, hours in ((17, -48), (18, 1))]
    assert limited(tmp_path, hours=4).evict().cells == 0
    assert list_cells(make_store(tmp_path), *records) == [17, 18]


def test_a_dry_run_removes_nothing(tmp_path: Path) -> None:
    record = store_cell(tmp_path, 17, 9)
    before = sorted((tmp_path / "store").rglob("*"))
    store = limited(tmp_path, hours=1)
    assert store.evict(dry_run=True).cells == 1
    assert sorted((tmp_path / "store").rglob("*")) == before
    assert list_cells(store, record) == [17]


def test_damaged_entries_and_unused_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = store_cell(tmp_path, 17, 0)
    path = make_store(tmp_path).path / name_entry(record)
    path.with_name(f"{'0' * 32}.json").write_text("{")
    (tmp_path / "store/blobs/00").mkdir()
    (tmp_path / "store/blobs/00" / ("0" * 64)).write_text("of a run that was killed")
    left = tmp_path / "store/tmp" / ("0" * 32)
    left.write_text("")
    store = limited(tmp_path)
    assert store.evict().cells == 1
    assert (tmp_path / "store/blobs/00" / ("0" * 64)).exists(), "a run may be about to need it"
    monkeypatch.setattr("exporter.store.eviction.GRACE_PERIOD", -1.0)
    store.evict()
    assert not (tmp_path / "store/blobs/00").exists()
    assert not left.exists()
    assert list_cells(store, record) == [17]


def test_an_eviction_without_a_store_does_nothing(tmp_path: Path) -> None:
    freed = limited(tmp_path).evict()
    assert (freed.cells, freed.bytes, freed.remaining) == (0, 0, 0)
    assert not (tmp_path / "store").exists()


def test_eviction_runs_only_after_a_write(tmp_path: Path) -> None:
    old = store_cell(tmp_path, 17, 9)
    store = limited(tmp_path, hours=4)
    assert store.evict_if_needed() is None
    assert list_cells(store, old) == [17]
    record = make_cell(tmp_path / "made-18")
    store.put([record], JobFolder(tmp_path / "made-18"))
    freed = store.evict_if_needed()
    assert freed is not None
    assert freed.cells == 1
    assert list_cells(store, old, record) == [18]


def test_eviction_after_a_small_write_runs_once_an_hour(tmp_path: Path) -> None:
    def edited(opset: int) -> Store:
        record = make_cell(tmp_path / f"made-{opset}", f"tiny/{opset}/cpu", content=str(opset))
        store = limited(tmp_path)
        store.put([record], JobFolder(tmp_path / f"made-{opset}"))
        return store

    assert edited(17).evict_if_needed() is not None, "for the first time"
    assert edited(18).evict_if_needed() is None
    bounded = tmp_path / "store/bounded"
    for opset, (seconds, again) in enumerate([(3500, False), (3700, True), (-3700, True)], 19):
        then = time.time() - seconds
        os.utime(bounded, (then, then))
        assert (edited(opset).evict_if_needed() is not None) is again, seconds


def test_eviction_after_a_large_write_runs_at_once(tmp_path: Path) -> None:
    old = store_cell(tmp_path, 17, 9)
    store = limited(tmp_path, size=10_000, hours=4)
    limited(tmp_path).evict()
    assert (tmp_path / "store/bounded").exists()
    record = make_cell(tmp_path / "made-18", "tiny/18/cpu", content="x" * 1000)
    store.put([record], JobFolder(tmp_path / "made-18"))
    assert store.evict_if_needed() is not None
    assert list_cells(store, old, record) == [18]
