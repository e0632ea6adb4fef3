"""Evict entries from a remote store to keep the limits of its prefix.

Only files with the names of the store are removed. If one entry cannot be read, nothing is
removed: its files might be in use. The age of an entry is the time since its upload, which a
restore repeats before the entry becomes old.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import partial

from exporter.cache.store.eviction import (
    EntryUse,
    EvictionResult,
    StoreLimits,
    choose_entries,
)
from exporter.cache.store.remote.entry_signature import unwrap
from exporter.cache.store.remote.remote_files import RemoteFile, WritableFiles
from exporter.cache.store.remote.request_pool import RequestPool
from exporter.cache.store.store_entry import DamagedEntry, parse_header
from exporter.core.files import CELL_LIMIT

_ENTRY = re.compile(r"entries/[0-9a-f]{2}/[0-9a-f]{62}/[0-9a-f]{32}\.json")
_BLOB = re.compile(r"blobs/[0-9a-f]{2}/([0-9a-f]{64})")
#: Incomplete uploads to a folder.
_SCRATCH = re.compile(r"tmp/[0-9a-f]{32}")


def evict_remote(
    files: WritableFiles, pool: RequestPool, limits: StoreLimits, *, dry_run: bool
) -> EvictionResult:
    """Remove entries and files beyond the limits.

    Raises:
        OSError: if a request fails.
    """
    now = time.time()
    listing = pool.submit(files.list_all)
    [all_files] = pool.collect([listing])
    entries = [file for file in all_files if _ENTRY.fullmatch(file.name)]
    requests = [pool.submit(partial(_read_use, files, file)) for file in entries]
    choice = choose_entries([use for use in pool.collect(requests) if use], limits, now)
    removed = set(choice.paths)
    unused = []
    for file in all_files:
        blob = _BLOB.fullmatch(file.name)
        is_old_scratch = _SCRATCH.fullmatch(file.name) and choice.is_unused("", file.changed, now)
        if is_old_scratch or (blob and choice.is_unused(blob[1], file.changed, now)):
            unused.append(file)
    evicted = [file for file in entries if file.name in removed]
    if not dry_run:
        # An entry without its files is a miss. Files without an entry are removed later.
        for group in (evicted, unused):
            pool.collect([pool.submit(partial(files.remove, file.name)) for file in group])
    return EvictionResult(
        cells=len(evicted), bytes=_sum_sizes([*evicted, *unused]), remaining=choice.remaining
    )


def _read_use(files: WritableFiles, file: RemoteFile) -> EntryUse | None:
    """Return the use of an entry, or None if it was removed since the listing."""
    try:
        data = b"".join(files.read_chunks(file.name, CELL_LIMIT))
        return EntryUse(file.name, file.changed, parse_header(unwrap(data, None)).files)
    except FileNotFoundError:
        return None
    except DamagedEntry:
        return EntryUse(file.name, file.changed, None)


def _sum_sizes(files: Sequence[RemoteFile]) -> int:
    return sum(file.size for file in files)
