"""A cell is restored completely, or not at all."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.jobs import JobFolder
from exporter.records.record import Record, Source
from exporter.store import Store, StoreLimits, cell_store
from exporter.store.store_entry import name_entry
from exporter.store.store_files import MAX_VARIANTS, LocalFiles
from tests.unit.store.cells import PARTS, everything, make_cell, make_store


def find(store: Store, record: Record, fits: Callable[[Record], bool] = lambda _: True) -> str:
    """Return "found", the problem, or ""."""
    result = store.find(record.cell, record.fingerprint, fits)
    return "found" if result.entry else result.problem


def fetch(store: Store, record: Record, folder: Path) -> str:
    entry = store.find(record.cell, record.fingerprint, lambda _: True).entry
    assert entry is not None
    folder.mkdir(exist_ok=True)
    return store.restore(entry, folder)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return make_cell(tmp_path / "tiny")


@pytest.fixture
def store(tmp_path: Path, record: Record) -> Store:
    store = make_store(tmp_path)
    assert store.put([record], JobFolder(tmp_path / "tiny")) == ""
    return store


def test_restored_records_and_files_are_equal(tmp_path: Path, store: Store, record: Record) -> None:
    entry = store.find(record.cell, PARTS, lambda _: True).entry
    assert entry is not None
    assert entry.record == record
    assert fetch(store, record, tmp_path / "out") == ""
    assert everything(tmp_path / "out") == everything(tmp_path / "tiny")


def test_no_file_has_a_second_name(tmp_path: Path, store: Store, record: Record) -> None:
    """A program that edits a built file in place does not change the store, and onnx reads it."""
    assert fetch(store, record, tmp_path / "out") == ""
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.stat().st_nlink for path in paths} == {1}


def test_without_the_call_of_the_kernel_files_are_copied(
    tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise OSError(18, "another file system")

    monkeypatch.setattr(os, "copy_file_range", refused, raising=False)
    store = make_store(tmp_path)
    store.put([record], JobFolder(tmp_path / "tiny"))
    assert fetch(store, record, tmp_path / "out") == ""
    assert everything(tmp_path / "out") == everything(tmp_path / "tiny")


def test_other_cells_parts_and_sources_are_not_found(store: Store, record: Record) -> None:
    assert find(store, record) == "found"
    assert find(store, record.model_copy(update={"fingerprint": {**PARTS, "entry": "x"}})) == ""
    assert (
        find(
            store, record.model_copy(update={"cell": record.cell.model_copy(update={"opset": 17})})
        )
        == ""
    )
    assert find(store, record, lambda _: False) == ""


def test_the_valid_entry_of_several_is_found(tmp_path: Path) -> None:
    store, folder = make_store(tmp_path), tmp_path / "tiny"
    for edit in "123":
        source = Source(file="net.py", state=edit * 64)
        built = make_cell(folder, content=f"graph {edit}", sources=(source,))
        store.put([built], JobFolder(folder))
    for edit in "123":
        result = store.find(built.cell, PARTS, lambda r: r.sources[0].state == edit * 64).entry  # noqa: B023 - called at once
        assert result is not None
        (tmp_path / edit).mkdir()
        assert store.restore(result, tmp_path / edit) == ""
        assert (tmp_path / edit / "18.onnx").read_text() == f"graph {edit}"


def test_only_the_newest_variants_stay(tmp_path: Path) -> None:
    store, folder = make_store(tmp_path), tmp_path / "tiny"
    for number in range(MAX_VARIANTS + 3):
        built = make_cell(folder, sources=(Source(file="net.py", state=f"{number:064}"),))
        store.put([built], JobFolder(folder))
    assert len(list((tmp_path / "store").rglob("*.json"))) == MAX_VARIANTS
    assert find(store, built, lambda r: r.sources == built.sources) == "found"


def test_a_flaky_record_removes_its_entry(tmp_path: Path, store: Store, record: Record) -> None:
    flaky = record.model_copy(update={"flaky": "was fail in an earlier run"})
    store.put([flaky], JobFolder(tmp_path / "tiny"))
    assert find(store, record) == ""


def entry_of(root: Path) -> Path:
    [path] = (root / "store/entries").rglob("*.json")
    return path


def blob_of(root: Path, content: str = "graph") -> Path:
    [path] = [
        p
        for p in (root / "store/blobs").rglob("*")
        if p.is_file() and p.read_bytes() == content.encode()
    ]
    return path


def cut(path: Path) -> None:
    shutil.copy(path, copy := path.with_suffix(".copy"))
    copy.replace(path)
    os.truncate(path, path.stat().st_size - 1)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.unlink()
    path.write_bytes(data)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize("how", [cut, flip])
def test_a_damaged_entry_is_a_miss_with_a_problem(
    tmp_path: Path, store: Store, record: Record, how: Callable[[Path], None]
) -> None:
    how(entry_of(tmp_path))
    assert find(store, record) == "its store entry is damaged"


@pytest.mark.parametrize(
    "change", [{"opset": 17}, {"fingerprint": {**PARTS, "entry": "x"}}], ids=["cell", "inputs"]
)
def test_an_entry_of_another_key_is_a_miss(
    tmp_path: Path, store: Store, record: Record, change: dict[str, Any]
) -> None:
    cell = record.cell.model_copy(update={"opset": change.get("opset", 18)})
    other = record.model_copy(update={"cell": cell, **change})
    path = store.path / name_entry(other)
    path.parent.mkdir(parents=True)
    shutil.copy(entry_of(tmp_path), path)
    assert find(store, other) == "its store entry is damaged"


def test_swapped_files_of_two_cells_are_not_restored(
    tmp_path: Path, store: Store, record: Record
) -> None:
    other = make_cell(tmp_path / "b", "tiny/17/cpu", content="htaph")  # the same size
    store.put([other], JobFolder(tmp_path / "b"))
    one, two = blob_of(tmp_path), blob_of(tmp_path, "htaph")
    one.rename(tmp_path / "swap")
    two.rename(one)
    (tmp_path / "swap").rename(two)
    assert fetch(store, record, tmp_path / "out") == "18.onnx is damaged in the store"
    assert fetch(store, other, tmp_path / "out") == "17.onnx is damaged in the store"
    assert not list((tmp_path / "out").glob("*.onnx"))


def test_a_killed_writer_leaves_no_entry(
    tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry is the last file, so a cell without all of its files is never found."""
    store, write, names = make_store(tmp_path), LocalFiles.write, []

    def write_until_killed(files: LocalFiles, name: str, content: bytes | Path) -> None:
        names.append(name)
        if len(names) == 3:
            raise KeyboardInterrupt
        write(files, name, content)

    monkeypatch.setattr(LocalFiles, "write", write_until_killed)
    with pytest.raises(KeyboardInterrupt):
        store.put([record], JobFolder(tmp_path / "tiny"))
    monkeypatch.undo()
    assert find(make_store(tmp_path), record) == ""
    store.put([record], JobFolder(tmp_path / "tiny"))
    assert fetch(store, record, tmp_path / "out") == ""


def test_the_last_of_two_results_is_restored_completely(tmp_path: Path) -> None:
    """PyTorch on two machines may differ in the last digit."""
    store = make_store(tmp_path)
    for content in ("one", "two"):
        record = make_cell(tmp_path / content, content=content)
        store.put([record], JobFolder(tmp_path / content))
    assert fetch(store, record, tmp_path / "out") == ""
    assert everything(tmp_path / "out") == everything(tmp_path / "two")


@pytest.mark.parametrize("how", [cut, flip, folder, link, Path.unlink])
def test_a_damaged_file_is_not_restored_and_can_be_stored_again(
    tmp_path: Path, store: Store, record: Record, how: Callable[[Path], None]
) -> None:
    how(blob_of(tmp_path))
    result = store.find(record.cell, PARTS, lambda _: True)
    if result.entry is None:
        assert result.problem == "the store has lost one of its files"
    else:
        (tmp_path / "out").mkdir()
        assert store.restore(result.entry, tmp_path / "out").startswith("18.onnx is ")
        assert not (tmp_path / "out/18.onnx").exists()
        assert find(store, record) == ""
    if how is folder:
        return  # a foreign folder is not removed, so the file cannot be stored again
    again = make_cell(tmp_path / "again")
    assert store.put([again], JobFolder(tmp_path / "again")) == ""
    assert fetch(store, again, tmp_path / "healed") == ""
    assert everything(tmp_path / "healed") == everything(tmp_path / "again")


def test_two_devices_are_restored_together_only_with_equal_files(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    one = make_cell(tmp_path / "a")
    same = make_cell(tmp_path / "a", "tiny/18/reference")
    other = make_cell(tmp_path / "b", "tiny/18/cuda", content="another graph")
    store.put([one, same], JobFolder(tmp_path / "a"))
    store.put([other], JobFolder(tmp_path / "b"))
    assert fetch(store, one, tmp_path / "out") == ""
    assert fetch(store, same, tmp_path / "out") == ""
    assert fetch(store, other, tmp_path / "out") == (
        "its 18.onnx in the store differs from that of the other cells"
    )
    assert fetch(store, other, tmp_path / "alone") == ""


def test_a_read_only_store_is_not_written(tmp_path: Path, store: Store, record: Record) -> None:
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "store").rglob("*")}
    reader = make_store(tmp_path, is_read_only=True)
    assert fetch(reader, record, tmp_path / "out") == ""
    other = make_cell(tmp_path / "tiny", "tiny/17/cpu")
    assert reader.put([other], JobFolder(tmp_path / "tiny")) == (
        f"{tmp_path / 'store'}: results are not stored: the store is read-only"
    )
    assert reader.put([other], JobFolder(tmp_path / "tiny")) == "", "said once"
    flip(blob_of(tmp_path))
    assert fetch(reader, record, tmp_path / "more") == "18.onnx is damaged in the store"
    after = {p: p.stat().st_mtime_ns for p in (tmp_path / "store").rglob("*")}
    assert before.keys() == after.keys()


def test_a_write_error_is_reported_once(tmp_path: Path, record: Record) -> None:
    (tmp_path / "store").write_text("a file in its place")
    store = make_store(tmp_path)
    problem = store.put([record], JobFolder(tmp_path / "tiny"))
    assert problem.startswith(f"{tmp_path / 'store'}: results are not stored: cannot be written: ")
    assert store.put([record], JobFolder(tmp_path / "tiny")) == ""
    assert find(store, record) == ""
    assert store.evict_if_needed() is None


def test_a_bad_path_costs_one_model(tmp_path: Path, record: Record) -> None:
    store = make_store(tmp_path)
    entry = store.path / name_entry(record)
    entry.mkdir(parents=True)
    (entry / "file").write_text("a folder in the place of the entry")
    problem = store.put([record], JobFolder(tmp_path / "tiny"))
    assert problem.startswith("tiny: results are not stored: ")
    assert str(entry) in problem
    other = make_cell(tmp_path / "tiny", "tiny/17/cpu")
    assert store.put([other], JobFolder(tmp_path / "tiny")) == ""
    assert fetch(store, other, tmp_path / "out") == ""


def test_an_unreadable_file_costs_its_cells(
    tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_cell(tmp_path / "tiny", "tiny/17/cpu")
    read = cell_store.hash_source
    monkeypatch.setattr(
        cell_store, "hash_source", lambda path: "" if path.name == "17.onnx" else read(path)
    )
    store = make_store(tmp_path)
    problem = store.put([other, record], JobFolder(tmp_path / "tiny"))
    assert problem.startswith("tiny: results are not stored: ")
    assert "17.onnx" in problem
    assert store.find(record.cell, PARTS, lambda _: True).entry
    assert not store.find(other.cell, PARTS, lambda _: True).entry


def test_a_model_larger_than_the_store_is_not_stored(tmp_path: Path, record: Record) -> None:
    store = make_store(tmp_path, StoreLimits(size=10, age=3600))
    assert "larger than" in store.put([record], JobFolder(tmp_path / "tiny"))
    assert find(store, record) == ""


def test_parallel_writes_reads_and_evictions(tmp_path: Path) -> None:
    """Restored cells are complete while other threads write and evict the same cell."""
    record = make_cell(tmp_path / "tiny")
    expected = everything(tmp_path / "tiny")
    taken: list[str] = []
    failures: list[BaseException] = []

    def work(number: int) -> None:
        store = make_store(tmp_path)
        folder_of_thread = tmp_path / f"own-{number}"
        shutil.copytree(tmp_path / "tiny", folder_of_thread)
        try:
            for turn in range(25):
                store.put([record], JobFolder(folder_of_thread))
                if turn % 5 == number:
                    Store(store.path, StoreLimits(size=0, age=3600)).evict()
                entry = store.find(record.cell, PARTS, lambda _: True).entry
                out = tmp_path / f"out-{number}-{turn}"
                out.mkdir()
                if entry and not (wrong := store.restore(entry, out)):
                    assert everything(out) == expected
                    taken.append(wrong)
        except BaseException as error:  # noqa: BLE001 - shown by the thread that waits
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(taken) > 10


def spread(folder: Path, count: int, changed: float, *, damaged: bool) -> None:
    """Add entries of other inputs to the only lookup key, with a time."""
    (template,) = (folder / "store/entries").rglob("*.json")
    valid, used = template.read_bytes(), template.stat().st_mtime
    entries = {template.with_name(f"{number:032x}.json"): b"damaged" for number in range(count)}
    if not damaged:
        entries = {}
        for number in range(count):
            built = make_cell(folder / "n", sources=(Source(file="n.py", state=f"{number:064}"),))
            make_store(folder).put([built], JobFolder(folder / "n"))
            path = folder / "store" / name_entry(built)
            entries[path] = path.read_bytes()
    for path, content in entries.items():  # a writer removes all but the last ones
        path.write_bytes(content)
        os.utime(path, (changed, changed))
    template.write_bytes(valid)
    os.utime(template, (used, used))


@pytest.mark.parametrize("damaged", [False, True])
def test_entries_of_a_wrong_clock_and_damaged_ones_hide_no_valid_entry(
    tmp_path: Path, store: Store, record: Record, damaged: bool
) -> None:
    week = time.time() + (100 if damaged else 7 * 24 * 3600)
    spread(tmp_path, MAX_VARIANTS, week, damaged=damaged)
    assert find(store, record, lambda each: each.sources == record.sources) == "found"
    # Nor does a writer remove what it has written.
    written = make_cell(tmp_path / "m", sources=(Source(file="m.py", state="5" * 64),))
    assert store.put([written], JobFolder(tmp_path / "m")) == ""
    assert find(store, written, lambda each: each.sources == written.sources) == "found"
