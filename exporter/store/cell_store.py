"""Put finished cells into the store, find them again and restore their files.

    entries/<lookup key>/<variant key>.json    the inputs, the record and the list of files
    blobs/<sha256>                             the files
    tmp/                                       incomplete files
    bounded                                    its timestamp is the time of the last eviction

A folder and a server have the same files. There is no lock: an entry is written after its files, a
file appears when it is complete, and a reader verifies each hash and each input. Any inconsistency
is a miss, so writers, killed writers and evictions can harm no reader.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from exporter.cache.states import hash_source
from exporter.core.files import walk_files
from exporter.core.text import format_byte_limit
from exporter.jobs import Job, JobFolder, get_link_parts, write_json
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
    StoreStatistics,
    find_link_states,
    find_lost_proof,
    find_valid_record,
)
from exporter.pipeline.schedule import make_jobs
from exporter.planning.plan import Plan
from exporter.records.record import CellId, Record
from exporter.store.eviction import EvictionResult, StoreLimits, evict
from exporter.store.store_entry import (
    DamagedEntry,
    StoredFile,
    StoreEntry,
    belongs_to,
    is_storable,
    make_lookup_key,
    name_entry,
    name_folder,
    serialize_entry,
)
from exporter.store.store_files import (
    ENTRY,
    MAX_VARIANTS,
    LocalFiles,
    fetch_verified,
    list_entries,
    mark_used,
    read_entries,
)

if TYPE_CHECKING:  # an export without a remote store starts no thread
    from exporter.store.remote_store import RemoteStore


#: The share of the size limit after which an eviction always runs.
_LARGE_GROWTH = 0.05
#: A file that tests if the store can be written, and its bytes.
_TEST_FILE, _TEST_SIZE = "tmp/test", 1 << 16
#: Seconds between two evictions after less growth.
_EVICTION_INTERVAL = 3600.0
#: The file with the timestamp of the last eviction.
_LAST_EVICTION = "bounded"


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
        self._files = LocalFiles(path)
        self._counts: Counter[str] = Counter()
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
        planned_cells = [each for each in decisions.to_run if stored.build.owns(each.cell)]
        results: dict[CellId, StoreResult] = {}
        hits: dict[CellId, StoreEntry] = {}

        def is_usable(record: Record) -> bool:
            is_thorough = record.thorough or not thorough
            return (
                is_thorough
                and validator.is_valid(record)
                and not validator.find_lost_diagnosis(record)
            )

        def find_valid(cell: CellId) -> Record | None:
            if cell in hits:
                return hits[cell].record
            return find_valid_record(stored, validator, decisions.reasons, cell)

        # The results of links are inputs of a chain.
        for are_chains in (False, True):
            inputs = {
                each.cell: validator.fingerprints.get_cell_parts(each.cell)
                | get_link_parts(find_link_states(validator.manifest, find_valid, each.cell))
                for each in planned_cells
                if bool(each.links) is are_chains
            }
            group = self.find_all(inputs, is_usable) if inputs else {}
            for cell, result in group.items():  # in the order of the plan
                entry = result.entry
                if entry and not find_lost_proof(entry.record, validator.manifest, find_valid):
                    hits[cell] = entry
            results |= group
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
            rechecks={c: model_id for c, model_id in decisions.rechecks.items() if c not in hits},
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
        model_id = job.spec.id
        main = FolderRecords(JobFolder(Path(job.folder)))
        groups: dict[str, dict[CellId, StoreEntry]] = {}
        for cell in job.cells():
            groups.setdefault(self._hits[cell].reference, {})[cell] = self._hits[cell]
        problems: dict[CellId, str] = {}
        # Cells with the same PyTorch outputs belong together. The largest group has priority.
        for index, group in enumerate(sorted(groups.values(), key=len, reverse=True)):
            part = main if index == 0 else FolderRecords(stored.build.create_folder(model_id))
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
        old = stored.get_model(model_id)
        mark_flaky(old, main)

        def has_valid_file(record: Record) -> bool:
            is_valid = validator.is_valid(record) or validator.has_only_check_changes(record)
            return record.cell in planned and is_valid

        dropped = carry_over(old, main, has_valid_file)
        if any(each.cell in planned and validator.is_valid(each) for each in dropped):
            message = "its store entry does not match the other results of the model"
            return dict.fromkeys(job.cells(), message)
        stored.replace_model(model_id, main)
        return problems

    def find_all(
        self,
        inputs: Mapping[CellId, Mapping[str, str]],
        is_valid: Callable[[Record], bool],
    ) -> dict[CellId, StoreResult]:
        """Find the entries of cells in this store, and the missing ones in the remote store."""
        results = {cell: self.find(cell, parts, is_valid) for cell, parts in inputs.items()}
        missing = [cell for cell, result in results.items() if not result.entry]
        if self.remote:
            keys = {cell: make_lookup_key(cell, inputs[cell]) for cell in missing}
            candidates = self.remote.find(keys.values())
            for cell, key in keys.items():
                valid = (each for each in candidates.get(key, ()) if is_valid(each.record))
                if entry := next(valid, None):
                    results[cell] = StoreResult(entry=entry)
        found_count = sum(results[cell].entry is not None for cell in missing)
        self._counts.update(
            local_hits=len(results) - len(missing),
            remote_hits=found_count,
            misses=len(missing) - found_count,
        )
        return results

    def find(
        self, cell: CellId, parts: Mapping[str, str], is_valid: Callable[[Record], bool]
    ) -> StoreResult:
        """Find an entry of a cell with the current inputs in this store."""
        problem = ""
        with suppress(OSError):  # the store cannot be listed; `put` returns why
            for entry in read_entries(self._files, name_folder(make_lookup_key(cell, parts))):
                if not isinstance(entry, StoreEntry):
                    problem = "its store entry is damaged"
                elif is_valid(entry.record):
                    if all(self._files.has(file.blob, file.size) for file in entry.files):
                        return StoreResult(entry=entry)
                    problem = "the store has lost one of its files"
        return StoreResult(problem=problem)

    def download(self, entries: Collection[StoreEntry]) -> None:
        """Copy the files of entries that only the remote store has, and the entries."""
        if not (self.remote and self._is_writable):
            return
        missing: dict[str, StoredFile] = {}
        remote_entries = []
        for entry in entries:
            files = [file for file in entry.files if not self._files.has(file.blob, file.size)]
            is_too_large = sum(file.size for file in entry.files) > self.limits.size
            is_known = self._files.locate(name_entry(entry.record)).exists()
            if is_too_large or (is_known and not files):
                continue
            remote_entries.append(entry)
            missing |= {file.sha256: file for file in files}
        size = self.remote.download(missing.values(), self._files)
        self._growth += size
        self._counts.update(downloaded_bytes=size)
        for entry in remote_entries:
            self.remote.mark_used(entry)
            if all(self._files.has(file.blob, file.size) for file in entry.files):
                with suppress(OSError):  # the next run finds the entry in the remote store again
                    self._write_entry(entry)

    def restore(self, store_entry: StoreEntry, folder: Path) -> str:
        """Copy the files of a cell to a folder that may contain other cells of the model.

        Returns:
            Why that is impossible, or "" if all files were restored.
        """
        name = name_entry(store_entry.record)
        for file in store_entry.files:
            target = folder / file.path
            if target.exists():
                # Logs differ between runs and prove nothing.
                if not file.path.startswith("logs/") and hash_source(target) != file.sha256:
                    return f"its {file.path} in the store differs from that of the other cells"
                continue
            try:
                fetch_verified(self._files, file, target)
            except (DamagedEntry, OSError) as error:
                # The next run can store the cell again.
                if self._is_writable:
                    for each in (name, file.blob):
                        with suppress(OSError):
                            self._files.remove(each)
                text = error.strerror if isinstance(error, OSError) else ""
                problem = f"unreadable ({text})" if text else str(error)
                return f"{file.path} is {problem} in the store"
        self._counts.update(restored_bytes=sum(file.size for file in store_entry.files))
        with suppress(OSError, DamagedEntry):
            if self._is_writable:
                mark_used(self._files, name)
        return ""

    def put(self, records: Collection[Record], job_folder: JobFolder) -> str:
        """Store the cells that are storable.

        Returns:
            Why the cells are not stored. The message is returned once, then "".
        """
        if not self._is_writable:
            warning, self._warning = self._warning, ""
            return warning
        problem = ""
        paths = sorted(path for path, _ in walk_files(job_folder.path))
        names = {path.relative_to(job_folder.path).as_posix(): path for path in paths}
        files: dict[str, StoredFile] = {}
        for record in records:
            try:
                if record.flaky:  # the stored result is one of two
                    self._files.remove(name_entry(record))
                    if self.remote:
                        self.remote.remove(name_entry(record))
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
                age = time.time() - self._files.locate(_LAST_EVICTION).lstat().st_mtime
                if 0 <= age < _EVICTION_INTERVAL:
                    return None
        return self.evict()

    def evict(self, limits: StoreLimits | None = None, *, dry_run: bool = False) -> EvictionResult:
        """Remove entries and files beyond the limits.

        Raises:
            OSError: if a file cannot be removed.
        """
        result = evict(self._files, limits or self.limits, dry_run=dry_run)
        if self._is_writable and not dry_run and self._files.locate("entries").is_dir():
            with suppress(OSError):  # the next run evicts again
                self._files.locate(_LAST_EVICTION).touch()
        return result

    def finish(self) -> list[str]:
        """End the use in this run: complete the uploads and evict.

        Returns:
            Messages for the user.
        """
        if self.remote:
            for files in self.remote.flush():
                size = sum(file.size for file in files)
                self._counts.update(uploaded_cells=1, uploaded_bytes=size)
        with suppress(OSError):  # another run evicts at the same time, or the next one will
            self.evict_if_needed()
        return self.take_notes()

    def take_notes(self) -> list[str]:
        """Return the messages about the remote store since the last call."""
        return self.remote.take_notes() if self.remote else []

    def make_statistics(self) -> StoreStatistics:
        waited = round(self.remote.waited_seconds, 3) if self.remote else 0.0
        return StoreStatistics(**self._counts, waited_seconds=waited)

    def measure(self) -> tuple[int, int]:
        """Return the number of results, and the bytes of all files.

        Raises:
            OSError: if the folder cannot be listed.
        """
        files = self._files.list_files()
        count = sum(ENTRY.fullmatch(file.name) is not None for file in files)
        return count, sum(file.size for file in files)

    def _can_write(self) -> bool:
        """Return True if only one path of the store is bad."""
        try:
            self._files.write(_TEST_FILE, bytes(_TEST_SIZE))
            self._files.remove(_TEST_FILE)
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
            if not self._files.has(file.blob, file.size):
                self._files.write(file.blob, paths[file.path])
        self._write_entry(entry)
        if self.remote:
            self.remote.upload(entry, self._files)
        return ""

    def _write_entry(self, store_entry: StoreEntry) -> None:
        name = name_entry(store_entry.record)
        self._files.write(name, serialize_entry(store_entry))
        self._growth += 1
        others = list_entries(self._files, name.rpartition("/")[0])
        others = [file for file in others if file.name != name]
        for file in others[MAX_VARIANTS - 1 :]:
            self._files.remove(file.name)
