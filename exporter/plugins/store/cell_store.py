"""Put finished cells into the store, find them again and restore their files.

    entries/<lookup key>/<variant key>.json    the inputs, the record and the list of files
    blobs/<sha256>                             the files
    tmp/                                       incomplete files
    bounded                                    its timestamp is the time of the last eviction

There is no lock: each file is written under a temporary name and renamed, and each reader verifies
hashes. Any inconsistency is a miss.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from exporter.cache.states import hash_source
from exporter.core.files import walk_files
from exporter.core.frozen_model import FrozenModel
from exporter.core.text import format_byte_limit
from exporter.jobs import Job, JobFolder, write_json
from exporter.pipeline.build_folder import (
    FolderRecords,
    StoredRecords,
    carry_over,
    mark_flaky,
    remove_unrecorded_files,
)
from exporter.pipeline.decisions import (
    Decisions,
    RecordValidator,
    ResultCache,
    find_lost_proof,
    find_valid_record,
)
from exporter.pipeline.schedule import make_jobs
from exporter.planning.plan import Plan
from exporter.plugins.store.store_entry import (
    Blobs,
    DamagedEntry,
    EvictionResult,
    StoredFile,
    StoreEntry,
    StoreLimits,
    belongs_to,
    count_entries,
    create_scratch_file,
    evict_local,
    is_storable,
    list_folder,
    make_lookup_key,
    make_variant_key,
    measure_folder,
    move_into_place,
    parse_entry,
    read_entry_file,
    serialize_entry,
)
from exporter.records.record import CellId, Record

if TYPE_CHECKING:  # an export without a remote store imports no web client
    from exporter.plugins.store.remote_store import RemoteStore


class StoreStatistics(FrozenModel):
    """The counts of one run. A cell is a hit in one place or a miss."""

    local_hits: int = 0
    remote_hits: int = 0
    misses: int = 0
    rejected: int = 0
    """Entries of the remote store that are damaged or not signed with the key."""
    restored_bytes: int = 0
    """The size of the files of restored cells, in the build folder."""
    downloaded_files: int = 0
    downloaded_bytes: int = 0
    failed_downloads: int = 0
    """Files that are missing, damaged or not received within the time limit."""
    uploaded_cells: int = 0
    uploaded_files: int = 0
    """Files that the remote store did not have."""
    uploaded_bytes: int = 0
    failed_uploads: int = 0
    """Cells that are not in the remote store because of an error or the time limit."""
    waited_seconds: float = 0.0
    """The time that the run waited for the remote store."""


#: Entries of one lookup key. Each edit of a source adds one, and a lookup reads all of them.
MAX_VARIANTS = 32
#: The share of the size limit after which an eviction always runs.
_LARGE_GROWTH = 0.05
#: Bytes of a file that tests if the store can be written.
_TEST_SIZE = 1 << 16
#: Seconds between two evictions after less growth.
_EVICTION_INTERVAL = 3600.0


class StoreResult(NamedTuple):
    """The result of a lookup."""

    entry: StoreEntry | None = None
    problem: str = ""
    """Why an existing entry cannot be used, or ""."""


class Store(ResultCache):
    """Finished cells by their inputs.

    Args:
        path: The store's folder. The first write creates it.
        limits: The limits for the eviction.
        is_read_only: True if the store is never written.
        remote: A remote store. Its results fill this store, and new results are uploaded to it.
    """

    def __init__(
        self,
        path: Path,
        limits: StoreLimits,
        *,
        is_read_only: bool = False,
        remote: RemoteStore | None = None,
    ) -> None:
        self.path = path
        self.limits = limits
        self.is_read_only = is_read_only
        self.remote = remote
        self._counts: Counter[str] = Counter()
        self._entries = path / "entries"
        self._scratch = path / "tmp"
        self._last_eviction = path / "bounded"
        self._blobs = Blobs(path / "blobs", self._scratch)
        self._is_writable = not is_read_only
        self._warning = f"{path}: results are not stored: the store is read-only"
        self._growth = 0
        self._hits: Mapping[CellId, StoreEntry] = {}

    def find_hits(
        self,
        decisions: Decisions,
        stored: StoredRecords,
        validator: RecordValidator,
        *,
        thorough: bool,
    ) -> Decisions:
        """Return the decisions with the cells that the store can restore.

        The export of another environment restores its cells itself.
        """
        cells = [each.cell for each in decisions.to_run if stored.build.owns(each.cell)]
        results = self.find_all(
            {cell: validator.fingerprints.get_cell_parts(cell) for cell in cells},
            lambda record: (
                validator.is_valid(record)
                and not validator.find_lost_diagnosis(record)
                and (record.thorough or not thorough)
            ),
        )
        hits: dict[CellId, StoreEntry] = {}

        def find_valid(cell: CellId) -> Record | None:
            if cell in hits:
                return hits[cell].record
            return find_valid_record(stored, validator, decisions.reasons, cell)

        for cell, result in results.items():  # in the order of the plan
            entry = result.entry
            if entry and not find_lost_proof(entry.record, validator.manifest, find_valid):
                hits[cell] = entry
        problems = {cell: result.problem for cell, result in results.items() if result.problem}
        reasons = {
            cell: f"{reason}, and {problems[cell]}" if cell in problems else reason
            for cell, reason in decisions.reasons.items()
            if cell not in hits
        }
        self._hits = hits
        return replace(
            decisions,
            to_run=tuple(each for each in decisions.to_run if each.cell in reasons),
            reasons=reasons,
            rechecks={c: model for c, model in decisions.rechecks.items() if c not in hits},
            hits={cell: decisions.reasons[cell] for cell in hits},
        )

    def get(
        self, decisions: Decisions, plan: Plan, stored: StoredRecords, validator: RecordValidator
    ) -> Decisions:
        """Restore the hits. Return the decisions with a run for each failure."""
        planned = {planned.cell for planned in plan.cells}
        to_restore = tuple(each for each in plan.to_run if each.cell in decisions.hits)
        restores = replace(decisions, to_run=to_restore)
        problems: dict[CellId, str] = {}
        self.download([self._hits[cell] for cell in decisions.hits])
        fingerprints = validator.fingerprints
        for job in make_jobs(validator.manifest, restores, stored.build, fingerprints):
            problems |= self._restore_model(job, stored, validator, planned)
        failed = {cell: f"{decisions.hits[cell]}, and {text}" for cell, text in problems.items()}
        reasons = {**decisions.reasons, **failed}
        return replace(
            decisions,
            to_run=tuple(planned for planned in plan.to_run if planned.cell in reasons),
            reasons=reasons,
            hits={cell: hit for cell, hit in decisions.hits.items() if cell not in problems},
        )

    def _restore_model(
        self,
        job: Job,
        stored: StoredRecords,
        validator: RecordValidator,
        planned: Collection[CellId],
    ) -> dict[CellId, str]:
        """Restore the cells of one model, beside valid results of the build folder, which stay.

        The build folder is locked.

        Returns:
            Why a cell cannot be restored.
        """
        model = job.spec.id
        main = FolderRecords(JobFolder(Path(job.folder)))
        groups: dict[str, dict[CellId, StoreEntry]] = {}
        for cell in job.cells():
            groups.setdefault(self._hits[cell].reference, {})[cell] = self._hits[cell]
        problems: dict[CellId, str] = {}
        # Cells with the same PyTorch outputs belong together. The largest group has priority.
        for index, group in enumerate(sorted(groups.values(), key=len, reverse=True)):
            part = main if index == 0 else FolderRecords(stored.build.create_folder(model))
            for cell, entry in group.items():
                if problem := self.restore(entry, part.folder.path):
                    problems[cell] = problem
                else:
                    part.write(entry.record)
            remove_unrecorded_files(part)
            if part is not main:
                dropped = carry_over(part, main, lambda _: True)
                cells = (record.cell for record in dropped)
                problems |= dict.fromkeys(cells, "its store entry is from another run")
        if not main.by_cell:
            return problems
        write_json(main.folder.job, job)
        old = stored.get_model(model)
        mark_flaky(old, main)

        def has_valid_file(record: Record) -> bool:
            is_valid = validator.is_valid(record) or validator.has_only_check_changes(record)
            return record.cell in planned and is_valid

        dropped = carry_over(old, main, has_valid_file)
        if any(each.cell in planned and validator.is_valid(each) for each in dropped):
            message = "its store entry does not match the other results of the model"
            return dict.fromkeys(job.cells(), message)
        stored.replace_model(model, main)
        return problems

    def find_all(
        self,
        inputs: Mapping[CellId, Mapping[str, str]],
        is_valid: Callable[[Record], bool],
    ) -> dict[CellId, StoreResult]:
        """Find the entries of cells in this store, and the missing ones in the remote store."""
        results = {cell: self.find(cell, parts, is_valid) for cell, parts in inputs.items()}
        missing = [cell for cell, result in results.items() if not result.entry]
        self._counts.update(local_hits=len(results) - len(missing))
        if self.remote:
            keys = {cell: _split_key(make_lookup_key(cell, inputs[cell])) for cell in missing}
            candidates = self.remote.find(keys.values())
            for cell, key in keys.items():
                valid = (e for e in candidates[key] if e.record.cell == cell and is_valid(e.record))
                if entry := next(valid, None):
                    results[cell] = StoreResult(entry=entry)
        found_count = sum(results[cell].entry is not None for cell in missing)
        self._counts.update(remote_hits=found_count, misses=len(missing) - found_count)
        return results

    def download(self, entries: Collection[StoreEntry]) -> None:
        """Copy the files of entries that only the remote store has, and the entries."""
        if not (self.remote and self._is_writable):
            return
        missing: dict[str, StoredFile] = {}
        remote_entries = []
        for entry in entries:
            files = [f for f in entry.files if not self._blobs.has_file(f)]
            is_too_large = sum(file.size for file in entry.files) > self.limits.size
            if is_too_large or (not files and self.locate_entry(entry.record).exists()):
                continue
            remote_entries.append(entry)
            missing |= {file.sha256: file for file in files}
        self._growth += self.remote.download(missing.values(), self._scratch, self._blobs.locate)
        for entry in remote_entries:
            self.remote.refresh(self._name_remote(entry.record))
            if all(self._blobs.has_file(file) for file in entry.files):
                with suppress(OSError):  # the next run finds the entry in the remote store again
                    self._write_entry(entry)

    def find(
        self, cell: CellId, parts: Mapping[str, str], is_valid: Callable[[Record], bool]
    ) -> StoreResult:
        """Find an entry of a cell with the current inputs."""
        problem = ""
        for path in _list_newest_first(self._entries / _split_key(make_lookup_key(cell, parts))):
            try:
                entry = parse_entry(read_entry_file(path))
            except DamagedEntry:
                problem = "its store entry is damaged"
                continue
            if entry.record.cell != cell or not is_valid(entry.record):
                continue
            if all(self._blobs.has_file(file) for file in entry.files):
                return StoreResult(entry=entry)
            problem = "the store has lost one of its files"
        return StoreResult(problem=problem)

    def restore(self, entry: StoreEntry, folder: Path) -> str:
        """Copy the files of a cell to a folder that may contain other cells of the model.

        Returns:
            Why that is impossible, or "" if all files were restored.
        """
        for file in entry.files:
            target = folder / file.path
            if target.exists():
                # Logs differ between runs and prove nothing.
                if not file.path.startswith("logs/") and hash_source(target) != file.sha256:
                    return f"its {file.path} in the store differs from that of the other cells"
                continue
            if problem := self._blobs.restore(file, target):
                # The next run can store the cell again.
                self._remove(self.locate_entry(entry.record))
                self._remove(self._blobs.locate(file.sha256))
                return f"{file.path} is {problem} in the store"
        self._counts.update(restored_bytes=sum(file.size for file in entry.files))
        with suppress(OSError):
            if self._is_writable:  # the timestamp is the time of the last use
                os.utime(self.locate_entry(entry.record))
        return ""

    def put(self, records: Collection[Record], folder: JobFolder) -> str:
        """Store the cells that are storable.

        Returns:
            Why the cells are not stored. The message is returned once, then "".
        """
        if not self._is_writable:
            warning, self._warning = self._warning, ""
            return warning
        problem = ""
        paths = sorted(path for path, _ in walk_files(folder.path))
        names = {path.relative_to(folder.path).as_posix(): path for path in paths}
        files: dict[str, StoredFile] = {}
        for record in records:
            try:
                if record.flaky:  # the stored result is one of two
                    self.locate_entry(record).unlink(missing_ok=True)
                    if self.remote:
                        self.remote.remove(self._name_remote(record))
                elif is_storable(record):
                    problem = self._put_storable(record, names, files) or problem
            except OSError as error:
                if not self._can_write():
                    self._is_writable, self._warning = False, ""
                    problem = f"cannot be written: {error.strerror}"
                    return f"{self.path}: results are not stored: {problem}"
                problem = f"{record.cell.model}: results are not stored: {error}; remove that path"
        return problem

    def evict_if_needed(self) -> EvictionResult | None:
        """Run an eviction if this run stored enough or the last eviction is old.

        To read every entry of a large store takes seconds.

        Returns:
            None if no eviction was necessary.
        """
        if not self._is_writable or not self._growth:
            return None
        if self._growth < self.limits.size * _LARGE_GROWTH:
            with suppress(OSError):
                age = time.time() - self._last_eviction.lstat().st_mtime
                if 0 <= age < _EVICTION_INTERVAL:
                    return None
        return self.evict()

    def evict(self, *, dry_run: bool = False) -> EvictionResult:
        """Remove entries and files beyond the limits."""
        result = evict_local(self.path, self.limits, dry_run=dry_run)
        if self._is_writable and not dry_run and self._entries.is_dir():
            with suppress(OSError):  # the next run evicts again
                self._last_eviction.touch()
        return result

    def finish(self) -> list[str]:
        """End the use in this run: complete the uploads and evict.

        Returns:
            Messages for the user.
        """
        if self.remote:
            self.remote.flush()
        with suppress(OSError):  # another run evicts at the same time, or the next one will
            self.evict_if_needed()
        return self.take_notes()

    def take_notes(self) -> list[str]:
        """Return the messages about the remote store since the last call."""
        return self.remote.take_notes() if self.remote else []

    def make_statistics(self) -> StoreStatistics:
        if self.remote is None:
            return StoreStatistics(**self._counts)
        waited = round(self.remote.waited_seconds, 3)
        return StoreStatistics(**self._counts, **self.remote.counts, waited_seconds=waited)

    def count(self) -> int:
        return count_entries(self.path)

    def measure_size(self) -> int:
        """Return the bytes of all files in the store."""
        return measure_folder(self.path)

    def locate_entry(self, record: Record) -> Path:
        key = make_lookup_key(record.cell, record.fingerprint)
        return self._entries / _split_key(key) / f"{make_variant_key(record)}.json"

    def _can_write(self) -> bool:
        """Return True if only one path of the store is bad."""
        try:
            with create_scratch_file(self._scratch) as path:
                path.write_bytes(bytes(_TEST_SIZE))
        except OSError:
            return False
        return True

    def _put_storable(
        self, record: Record, paths: Mapping[str, Path], files: dict[str, StoredFile]
    ) -> str:
        """Store a cell after its files. Return why the model is too large, or "".

        New files are added to `files`, which contains those of earlier cells of the model.
        """
        own_names = [name for name in paths if belongs_to(name, record)]
        for name in own_names:
            if name not in files:
                sha256, size = hash_source(paths[name]), paths[name].stat().st_size
                if not sha256:
                    raise OSError(f"{paths[name]} cannot be read")
                files[name] = StoredFile(path=name, sha256=sha256, size=size)
                self._growth += size
        entry = StoreEntry(record=record, files=tuple(files[name] for name in own_names))
        if sum(file.size for file in entry.files) > self.limits.size:
            limit = format_byte_limit(self.limits.size)
            return f"{record.cell.model} is larger than the store's limit of {limit}"
        for file in entry.files:
            self._blobs.put(paths[file.path], file)
        self._write_entry(entry)
        if self.remote:
            self.remote.upload(self._name_remote(record), entry, self._blobs.locate)
        return ""

    def _write_entry(self, entry: StoreEntry) -> None:
        target = self.locate_entry(entry.record)
        with create_scratch_file(self._scratch) as scratch:
            scratch.write_bytes(serialize_entry(entry))
            move_into_place(scratch, target)
        self._growth += 1
        for path in _list_newest_first(target.parent)[MAX_VARIANTS:]:
            path.unlink(missing_ok=True)

    def _name_remote(self, record: Record) -> str:
        """Return the name of an entry in the remote store, which has the same layout."""
        return self.locate_entry(record).relative_to(self.path).as_posix()

    def _remove(self, path: Path) -> None:
        if self._is_writable:
            with suppress(OSError):
                path.unlink()


def _split_key(key: str) -> str:
    return f"{key[:2]}/{key[2:]}"


def _list_newest_first(folder: Path) -> list[Path]:
    paths = []
    for path in list_folder(folder):
        with suppress(OSError):  # removed by another process
            paths.append((path.lstat().st_mtime_ns, path))
    return [path for _, path in sorted(paths, reverse=True)]
