"""Evict entries from a store to keep its limits.

Input: the store's folder and its `StoreLimits`. Output: an `EvictionResult`.

The least recently used entry is evicted first. A file is removed with its last entry. A file
without an entry is removed after a day, because a run may be about to write the entry.
"""

from __future__ import annotations

import shutil
import stat
import time
from collections import Counter
from collections.abc import Iterator
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
_GRACE_PERIOD = 24 * 3600.0


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
class _EntryUse:
    """An entry with its last use and its files."""

    path: Path
    used: float
    """Seconds since the epoch."""
    files: tuple[StoredFile, ...] | None
    """None if the entry is damaged."""

    @property
    def hashes(self) -> set[str]:
        return {file.sha256 for file in self.files or ()}


def evict(path: Path, blobs: Blobs, limits: StoreLimits, *, dry_run: bool) -> EvictionResult:
    """Remove entries and files beyond the limits.

    Raises:
        OSError: if a file cannot be removed.
    """
    entries = sorted(_read_entries(path), key=lambda entry: entry.used)
    users = Counter(sha256 for entry in entries for sha256 in entry.hashes)
    sizes = {file.sha256: file.size for entry in entries for file in entry.files or ()}
    now, remaining = time.time(), sum(sizes.values())
    paths: list[Path] = []
    for entry in entries:
        is_recent = now - entry.used <= limits.age
        if entry.files is not None and is_recent and remaining <= limits.size:
            continue
        paths.append(entry.path)
        for sha256 in entry.hashes:
            users[sha256] -= 1
            remaining -= 0 if users[sha256] else sizes[sha256]
    count = len(paths)
    unused = (blob for blob in blobs.list_files() if not users[blob.name])
    paths += [blob for blob in unused if blob.name in users or _is_old(blob, now)]
    paths += [each for each in list_folder(path / "tmp") if _is_old(each, now)]
    freed = sum(_measure_freed(each) for each in paths)
    for each in () if dry_run else paths:
        _remove(each)
    return EvictionResult(cells=count, bytes=freed, remaining=remaining)


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


def _read_entries(path: Path) -> Iterator[_EntryUse]:
    for each in list_entries(path / "entries"):
        with suppress(OSError):  # removed by another process
            used = each.lstat().st_mtime
            try:
                files = parse_header(read_entry_file(each)).files
            except DamagedEntry:
                files = None
            yield _EntryUse(each, used, files)


def _is_old(path: Path, now: float) -> bool:
    try:
        return now - path.lstat().st_ctime > _GRACE_PERIOD
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
