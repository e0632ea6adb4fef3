"""Evict entries from a store to keep its limits.

The least recently used entry is evicted first. A file is removed with its last entry. A file
without an entry is removed after a day, because a run may be about to write the entry.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from exporter.cache.store.store_entry import DamagedEntry, StoredFile, parse_header, read_entry_file

#: Other files in the folder of a store are not its own, and stay.
_ENTRY = re.compile(r"entries/[0-9a-f]{2}/[0-9a-f]{62}/[0-9a-f]{32}\.json")
_BLOB = re.compile(r"blobs/[0-9a-f]{2}/([0-9a-f]{64})")
#: Incomplete files.
_SCRATCH = re.compile(r"tmp/[0-9a-f]{32}")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFile:
    """A file of a local or remote store."""

    name: str
    size: int = 0
    """The bytes that a removal frees."""
    changed: float = 0.0
    """Seconds since 1970, or 0 if the server does not report it: the last use of an entry."""


def evict(
    files: Collection[StoreFile],
    read: Callable[[Sequence[str]], Iterable[Sequence[StoredFile] | None]],
    remove: Callable[[Sequence[str]], object],
    limits: StoreLimits,
    *,
    dry_run: bool,
) -> EvictionResult:
    """Remove entries beyond the limits, and unused files: damaged, old, then the least used ones.

    `read` returns the files of each entry, or None if the entry is damaged.

    Raises:
        OSError: if a request fails. An entry that cannot be read may use any file.
    """
    now = time.time()
    entries = [file for file in files if _ENTRY.fullmatch(file.name)]
    contents = dict(zip(entries, read([each.name for each in entries]), strict=True))
    sizes = {each.sha256: each.size for used in contents.values() for each in used or ()}
    hashes = {entry: {each.sha256 for each in used or ()} for entry, used in contents.items()}
    users = Counter(sha256 for each in hashes.values() for sha256 in each)
    remaining = sum(sizes.values())
    evicted = []
    for entry in sorted(entries, key=lambda each: each.changed):
        is_recent = now - entry.changed <= limits.age
        if contents[entry] is not None and is_recent and remaining <= limits.size:
            continue
        evicted.append(entry)
        for sha256 in hashes[entry]:
            users[sha256] -= 1
            remaining -= 0 if users[sha256] else sizes[sha256]

    def is_unused(file: StoreFile) -> bool:
        blob = _BLOB.fullmatch(file.name)
        if blob and blob[1] in users:
            return not users[blob[1]]
        return bool(blob or _SCRATCH.fullmatch(file.name)) and now - file.changed > GRACE_PERIOD

    unused = [file for file in files if is_unused(file)]
    if not dry_run:
        # An entry without its files is a miss. Files without an entry are removed later.
        for group in (evicted, unused):
            remove([file.name for file in group])
    freed = sum(file.size for file in (*evicted, *unused))
    return EvictionResult(cells=len(evicted), bytes=freed, remaining=remaining)


def evict_local(path: Path, limits: StoreLimits, *, dry_run: bool) -> EvictionResult:
    """Remove entries and files of a local store beyond the limits.

    Raises:
        OSError: if a file cannot be removed.
    """

    def remove(names: Sequence[str]) -> None:
        for file in (path / name for name in names):
            file.unlink(missing_ok=True)
            with suppress(OSError):  # not empty
                file.parent.rmdir()

    def read(names: Sequence[str]) -> Iterator[Sequence[StoredFile] | None]:
        for name in names:
            try:
                yield parse_header(read_entry_file(path / name)).files
            except DamagedEntry:
                yield None

    return evict(list(list_files(path)), read, remove, limits, dry_run=dry_run)


def list_files(path: Path) -> Iterator[StoreFile]:
    """Yield the files of a local store. Links are not followed."""
    for folder, _, names in os.walk(path):
        for file in (Path(folder, name) for name in names):
            with suppress(OSError):  # removed by another process
                state = file.lstat()
                if stat.S_ISREG(state.st_mode):
                    name = file.relative_to(path).as_posix()
                    is_entry = _ENTRY.fullmatch(name)
                    yield StoreFile(
                        name=name,
                        # A file with a second name elsewhere frees nothing.
                        size=state.st_size if state.st_nlink == 1 else 0,
                        changed=state.st_mtime if is_entry else state.st_ctime,
                    )


def count_entries(path: Path) -> int:
    return sum(_ENTRY.fullmatch(file.name) is not None for file in list_files(path))


def measure_folder(path: Path) -> int:
    """Return the bytes of all files below a folder."""
    total = 0
    for each in path.rglob("*"):
        with suppress(OSError):  # removed by another process
            state = each.lstat()
            total += state.st_size if stat.S_ISREG(state.st_mode) else 0
    return total
