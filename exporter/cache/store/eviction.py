"""Evict entries from a store to keep its limits.

The least recently used entry is evicted first. A file is removed with its last entry. A file
without an entry is removed after a day, because a run may be about to write the entry.
"""

from __future__ import annotations

import shutil
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from exporter.cache.store.blobs import Blobs, list_folder
from exporter.cache.store.store_entry import (
    DamagedEntry,
    StoredFile,
    parse_header,
    read_entry_file,
)

#: Seconds after which a file without an entry does not belong to a running export.
GRACE_PERIOD = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """The limits of a store."""

    size: int
    """Bytes."""
    age: float
    """Seconds since the last use of a cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionResult:
    """The removed entries and the freed space."""

    cells: int
    """The number of removed entries, including damaged ones."""
    bytes: int
    """The freed space. A file with a second name elsewhere does not count."""
    remaining: int
    """The bytes of the remaining files."""


@dataclass(frozen=True, slots=True)
class EntryUse:
    """An entry with its last use and its files."""

    path: str
    used: float
    """Seconds since the epoch."""
    files: tuple[StoredFile, ...] | None
    """None if the entry is damaged."""

    @property
    def hashes(self) -> set[str]:
        """The files that the entry uses."""
        return {file.sha256 for file in self.files or ()}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionChoice:
    """The entries to remove, and the use of the files afterwards."""

    paths: tuple[str, ...]
    users: Mapping[str, int]
    """The number of remaining entries of each file that any entry uses."""
    remaining: int
    """The bytes of the used files."""

    def is_unused(self, sha256: str, changed: float, now: float) -> bool:
        """Return True if a file can be removed: no entry uses it or will use it."""
        if sha256 in self.users:
            return not self.users[sha256]
        return now - changed > GRACE_PERIOD


def choose_entries(entries: Iterable[EntryUse], limits: StoreLimits, now: float) -> EvictionChoice:
    """Choose the entries beyond the limits: damaged, old, then the least recently used ones."""
    by_use = sorted(entries, key=lambda entry: entry.used)
    users = Counter(sha256 for entry in by_use for sha256 in entry.hashes)
    sizes = {file.sha256: file.size for entry in by_use for file in entry.files or ()}
    remaining = sum(sizes.values())
    paths = []
    for entry in by_use:
        is_recent = now - entry.used <= limits.age
        if entry.files is not None and is_recent and remaining <= limits.size:
            continue
        paths.append(entry.path)
        for sha256 in entry.hashes:
            users[sha256] -= 1
            remaining -= 0 if users[sha256] else sizes[sha256]
    return EvictionChoice(paths=tuple(paths), users=dict(users), remaining=remaining)


def evict(path: Path, blobs: Blobs, limits: StoreLimits, *, dry_run: bool) -> EvictionResult:
    """Remove entries and files beyond the limits.

    Raises:
        OSError: if a file cannot be removed.
    """
    now = time.time()
    choice = choose_entries(_read_entries(path), limits, now)
    paths = [Path(each) for each in choice.paths]
    for blob in blobs.list_files():
        with suppress(OSError):  # removed by another process
            if choice.is_unused(blob.name, blob.lstat().st_ctime, now):
                paths.append(blob)
    paths += [each for each in list_folder(path / "tmp") if _is_old(each, now)]
    freed = sum(_measure_freed(each) for each in paths)
    for each in () if dry_run else paths:
        _remove(each)
    return EvictionResult(cells=len(choice.paths), bytes=freed, remaining=choice.remaining)


def measure_folder(path: Path) -> int:
    """Return the bytes of all files below a folder."""
    total = 0
    for each in path.rglob("*"):
        with suppress(OSError):  # removed by another process
            state = each.lstat()
            total += state.st_size if stat.S_ISREG(state.st_mode) else 0
    return total


def list_entries(entries: Path) -> Iterator[Path]:
    """Yield the path of each entry in the folder `entries` of a store."""
    for group in list_folder(entries):
        for folder in list_folder(group):
            yield from list_folder(folder)


def _read_entries(path: Path) -> Iterator[EntryUse]:
    for each in list_entries(path / "entries"):
        with suppress(OSError):  # removed by another process
            used = each.lstat().st_mtime
            try:
                files = parse_header(read_entry_file(each)).files
            except DamagedEntry:
                files = None
            yield EntryUse(str(each), used, files)


def _is_old(path: Path, now: float) -> bool:
    try:
        return now - path.lstat().st_ctime > GRACE_PERIOD
    except OSError:
        return False  # removed by another process


def _measure_freed(path: Path) -> int:
    """Return the bytes that a removal frees."""
    freed = 0
    for each in path.rglob("*") if path.is_dir() else [path]:
        with suppress(OSError):
            state = each.lstat()
            freed += state.st_size if stat.S_ISREG(state.st_mode) and state.st_nlink == 1 else 0
    return freed


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    path.unlink(missing_ok=True)
    with suppress(OSError):  # not empty
        path.parent.rmdir()
