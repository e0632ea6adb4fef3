"""Keep a store within its limits: remove damaged entries, old ones, then the least used ones.

A file is removed with its last entry. A file without an entry is removed after a day, because a run
may be about to write the entry.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from exporter.store.store_entry import DamagedEntry, StoredFile, parse_entry
from exporter.store.store_files import ENTRY, Files, StoreFile

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
    remaining: int
    """The bytes of the remaining files."""


def evict(
    files: Files,
    limits: StoreLimits,
    *,
    dry_run: bool,
    call_all: Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]] = map,
) -> EvictionResult:
    """Remove entries beyond the limits, and unused files.

    `call_all` calls a function for each item, as `map` does.

    Raises:
        OSError: if a request fails. An entry that cannot be read may use any file.
    """

    def read(file: StoreFile) -> Sequence[StoredFile] | None:
        """Return the files of an entry, or None if it is damaged."""
        try:
            return parse_entry(files.read(file.name)).files
        except FileNotFoundError:  # removed since the listing
            return ()
        except DamagedEntry:
            return None

    now, listed = time.time(), files.list_files()
    entries = sorted(
        (file for file in listed if ENTRY.fullmatch(file.name)),
        key=lambda file: file.changed,
        reverse=True,
    )
    known: set[str] = set()
    retained: set[str] = set()
    evicted: list[StoreFile] = []
    remaining, is_full = 0, False
    for entry, used in zip(entries, call_all(read, entries), strict=True):
        new = {file.sha256: file.size for file in used or () if file.sha256 not in retained}
        known |= new.keys()
        is_full = is_full or remaining + sum(new.values()) > limits.size
        if used is None or is_full or now - entry.changed > limits.age:
            evicted.append(entry)
        else:
            retained |= new.keys()
            remaining += sum(new.values())

    def is_unused(file: StoreFile) -> bool:
        blob = _BLOB.fullmatch(file.name)
        if blob and blob[1] in known:
            return blob[1] not in retained
        return bool(blob or _SCRATCH.fullmatch(file.name)) and now - file.changed > GRACE_PERIOD

    unused = [file for file in listed if is_unused(file)]
    if not dry_run:
        # An entry without its files is a miss. Files without an entry are removed later.
        for group in (evicted, unused):
            for _ in call_all(files.remove, [file.name for file in group]):
                pass
    freed = sum(file.size for file in (*evicted, *unused))
    return EvictionResult(cells=len(evicted), bytes=freed, remaining=remaining)
