"""The store: finished cells put in, found again and taken out.

In: records with the model's folder that holds their files. Out: an `ModelEntry` for a cell that is asked
for with the same inputs, and its files in another folder.

    entries/<first key>/<second key>.json    what a cell was made from, its record and its files
    blobs/<sha256>                           the files, each once
    tmp/                                     what is not yet whole
    bounded                                  when it was last held to its limits

Nothing is locked: everything is written beside its place and renamed into it, and whoever reads
looks whether it is whole. In doubt there is nothing in the store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from exporter.cache.fingerprint import file_digest
from exporter.cache.store.blobs import (
    Blobs,
    listed,
    put_in_place,
    scratch_file,
)
from exporter.cache.store.entry import (
    Damaged,
    StoredFile,
    StoreEntry,
    is_of,
    is_storable,
    lookup_key,
    read_entry,
    read_file,
    variant_key,
    write_entry,
)
from exporter.cache.store.eviction import (
    Freed,
    StoreLimits,
    bound,
    of_every_key,
    size_of,
)
from exporter.core.resources import size_text
from exporter.jobs.job_folder import JobFolder
from exporter.records.record import CellId, Record

#: Of one first key: each edit of a source leaves one, and each is looked at.
MOST_ENTRIES = 32
#: As a share of the store's limit, what is worth looking at all of it for.
_MUCH = 0.05
#: Seconds within which it is not looked at again for less.
_LATELY = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreResult:
    """What the store says of a cell."""

    entry: StoreEntry | None = None
    problem: str = ""
    """Why there is no entry although there was one; empty where there is nothing to say."""


class Store:
    """Finished cells by what they were made from.

    Args:
        path: Its folder; made when something is put there for the first time.
        limits: What is kept beyond them goes, what was not used for longest first.
        is_read_only: Whether nothing is ever written there.
        build: The build folder, where nobody else uses the store: then external data lies either
            there or here, and takes no room twice.
    """

    def __init__(
        self,
        path: Path,
        limits: StoreLimits,
        *,
        is_read_only: bool = False,
        build: Path | None = None,
    ) -> None:
        self.path = path
        self.limits = limits
        self.is_read_only = is_read_only
        self._entries = path / "entries"
        self._scratch = path / "tmp"
        self._bounded = path / "bounded"
        self._blobs = Blobs(path / "blobs", self._scratch, build, is_read_only=is_read_only)
        self._writes = not is_read_only
        self._note = f"{path}: nothing is kept there, it is only read" if is_read_only else ""
        self._grown = 0

    def find(
        self, cell: CellId, parts: Mapping[str, str], fits: Callable[[Record], bool]
    ) -> StoreResult:
        """Looks for a cell that was made from what is there today.

        Args:
            cell: The cell.
            parts: Its fingerprint today.
            fits: Whether a record speaks for its cell with the files and packages of today.
        """
        problem = ""
        for path in _newest_first(self._entries / _folder(lookup_key(cell, parts))):
            try:
                entry = read_entry(read_file(path))
            except Damaged:
                problem = "what the store has of it is damaged"
                continue
            if entry.record.cell != cell or not fits(entry.record):
                continue
            if all(self._blobs.has(file, cell.model) for file in entry.files):
                return StoreResult(entry=entry)
            problem = "a file of it is gone from the store"
        return StoreResult(problem=problem)

    def take(self, entry: StoreEntry, folder: Path) -> str:
        """Puts the files of a cell into a fresh folder, beside those of other cells of the model.

        Returns:
            What is wrong; empty where everything is there and whole.
        """
        for file in entry.files:
            target = folder / file.path
            if target.exists():
                # Logs of several runs differ, and prove nothing.
                if not file.path.startswith("logs/") and file_digest(target) != file.sha256:
                    return f"its {file.path} in the store is not that of the other cells"
                continue
            if wrong := self._blobs.take(file, entry.record.cell.model, target):
                # Out of the way of the next one that is made.
                self._remove(self._place(entry.record))
                self._remove(self._blobs.place(file.sha256))
                return f"{file.path} is {wrong} in the store"
        with suppress(OSError):  # used a moment ago
            if self._writes:
                os.utime(self._place(entry.record))
        return ""

    def put(self, records: Collection[Record], folder: JobFolder) -> str:
        """Keeps the cells of a model that would come out the same again.

        Args:
            records: What was found, by cells whose files lie in the folder.
            folder: The model's folder.

        Returns:
            Why nothing is kept, said once; empty where there is nothing to say.
        """
        if not self._writes:
            note, self._note = self._note, ""
            return note
        try:
            for record in records:
                if record.flaky:  # what was kept of it is one of two answers
                    self._place(record).unlink(missing_ok=True)
            return self._put([record for record in records if is_storable(record)], folder)
        except OSError as error:
            self._writes = False
            return f"{self.path}: nothing is kept there, it cannot be written: {error.strerror}"

    def take_over(self, folder: Path) -> None:
        """Keeps what only a model's folder has that is about to go, see `build`."""
        if self._writes:
            with suppress(OSError):  # it is made again where it is wanted
                self._blobs.take_over(folder)

    def tidy(self) -> Freed | None:
        """Keeps the store within its limits, where enough was put there since.

        To look at every entry takes seconds in a large store: not after every edit.
        """
        if not self._writes or not self._grown:
            return None
        is_little = self._grown < self.limits.size * _MUCH
        return None if is_little and self._was_bounded_lately() else self.bound()

    def _was_bounded_lately(self) -> bool:
        with suppress(OSError):
            return 0 <= time.time() - self._bounded.lstat().st_mtime < _LATELY
        return False

    def bound(self, *, dry_run: bool = False) -> Freed:
        """Removes what goes beyond the limits."""
        freed = bound(self.path, self._blobs, self.limits, dry_run=dry_run)
        if self._writes and not dry_run and self._entries.is_dir():
            with suppress(OSError):  # then it is looked at again the next time
                self._bounded.touch()
        return freed

    def count(self) -> int:
        """How many results are in it."""
        return sum(1 for _ in of_every_key(self._entries))

    def size(self) -> int:
        """Bytes of everything in it."""
        return size_of(self.path)

    def _put(self, records: Iterable[Record], folder: JobFolder) -> str:
        known: dict[str, StoredFile] = {}
        there = _files(folder.path)
        for record in records:
            names = [name for name in there if is_of(name, record)]
            for name in names:
                if name not in known:
                    known[name] = _look(folder.path, name)
                    self._grown += known[name].size
            files = tuple(known[name] for name in names)
            if sum(file.size for file in files) > self.limits.size:
                limit = size_text(self.limits.size)
                return f"{record.cell.model} is larger than the {limit} that the store may take"
            for file in files:
                self._blobs.put(folder.path / file.path, file)
            self._write(StoreEntry(record=record, files=files))
        return ""

    def _write(self, entry: StoreEntry) -> None:
        place = self._place(entry.record)
        with scratch_file(self._scratch) as fresh:
            fresh.write_bytes(write_entry(entry))
            put_in_place(fresh, place)
        self._grown += 1
        for path in _newest_first(place.parent)[MOST_ENTRIES:]:
            path.unlink(missing_ok=True)

    def _remove(self, path: Path) -> None:
        if self._writes:
            with suppress(OSError):
                path.unlink()

    def _place(self, record: Record) -> Path:
        first = lookup_key(record.cell, record.fingerprint)
        return self._entries / _folder(first) / f"{variant_key(record)}.json"


def _folder(key: str) -> str:
    return f"{key[:2]}/{key[2:]}"


def _files(folder: Path) -> list[str]:
    """Every file of a model's folder, relative to it; none behind a link."""
    return [
        path.relative_to(folder).as_posix()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    ]


def _look(folder: Path, name: str) -> StoredFile:
    path = folder / name
    return StoredFile(path=name, sha256=file_digest(path), size=path.stat().st_size)


def _newest_first(folder: Path) -> list[Path]:
    found = []
    for path in listed(folder):
        with suppress(OSError):  # removed by somebody else meanwhile
            found.append((path.lstat().st_mtime_ns, path))
    return [path for _, path in sorted(found, reverse=True)]
