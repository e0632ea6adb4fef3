"""How a store stays within its limits.

In: the store's folder and its `StoreLimits`. Out: what was removed, as `Freed`.

What was not used for longest goes first. A file goes with the last entry that needs it; one that no
entry needs goes unless it is new, since its entry may be about to be written.
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

from exporter.cache.store.blobs import Blobs, listed
from exporter.cache.store.entry import (
    Damaged,
    StoredFile,
    read_file,
    read_head,
)

#: Seconds within which a run may still be putting something together.
_GRACE = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """What a store may hold."""

    size: int
    """Bytes."""
    age: float
    """Seconds since a cell was used last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """What was removed."""

    cells: int
    """How many results, damaged ones too."""
    bytes: int
    """What that frees; a file that has another name elsewhere frees none."""
    left: int
    """Bytes that stay."""


@dataclass(frozen=True, slots=True)
class _Known:
    """An entry as far as its limits go."""

    path: Path
    used: float
    """When it was used last, in seconds since the epoch."""
    files: tuple[StoredFile, ...] | None
    """None where it is damaged."""


def bound(path: Path, blobs: Blobs, limits: StoreLimits, *, dry_run: bool) -> Freed:
    """Removes what goes beyond the limits.

    Raises:
        OSError: where something cannot be removed.
    """
    entries = sorted(_entries(path), key=lambda entry: entry.used)
    users = Counter(digest for entry in entries for digest in _digests(entry))
    sizes = {file.sha256: file.size for entry in entries for file in entry.files or ()}
    now, left = time.time(), sum(sizes.values())
    goes: list[Path] = []
    for entry in entries:
        if entry.files is not None and now - entry.used <= limits.age and left <= limits.size:
            continue
        goes.append(entry.path)
        for digest in _digests(entry):
            users[digest] -= 1
            left -= 0 if users[digest] else sizes[digest]
    count = len(goes)
    goes += _unused(blobs, users, now)
    goes += [each for each in listed(path / "tmp") if _is_old(each, now)]
    freed = sum(_frees(each) for each in goes)
    for each in () if dry_run else goes:
        _remove(each)
    return Freed(cells=count, bytes=freed, left=left)


def size_of(path: Path) -> int:
    """Bytes of every file below a folder."""
    total = 0
    for each in path.rglob("*"):
        with suppress(OSError):  # removed by somebody else meanwhile
            state = each.lstat()
            total += state.st_size if stat.S_ISREG(state.st_mode) else 0
    return total


def _entries(path: Path) -> Iterator[_Known]:
    for each in of_every_key(path / "entries"):
        with suppress(OSError):  # removed by somebody else meanwhile
            used = each.lstat().st_mtime
            try:
                files = read_head(read_file(each)).files
            except Damaged:
                files = None
            yield _Known(each, used, files)


def of_every_key(entries: Path) -> Iterator[Path]:
    """Every entry in the folder of a store's entries."""
    for some in listed(entries):
        for folder in listed(some):
            yield from listed(folder)


def _digests(entry: _Known) -> set[str]:
    return {file.sha256 for file in entry.files or ()}


def _unused(blobs: Blobs, users: Counter[str], now: float) -> Iterator[Path]:
    """Files that no entry needs: those that lost their last one, and old ones."""
    for path in blobs.all():
        if not users[path.name] and (path.name in users or _is_old(path, now)):
            yield path


def _is_old(path: Path, now: float) -> bool:
    """Whether it is too old to be part of a run that goes on."""
    try:
        return now - path.lstat().st_ctime > _GRACE
    except OSError:
        return False  # removed by somebody else meanwhile


def _frees(path: Path) -> int:
    """Bytes; a file that has another name elsewhere frees none."""
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
