"""Find cells in a remote store, download their files and upload new cells."""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from exporter.cache.states import hash_source
from exporter.core.files import CELL_LIMIT
from exporter.core.text import pluralize
from exporter.plugins.store.remote_files import (
    RemoteFiles,
    Request,
    RequestPool,
    TimeLimit,
    describe_error,
)
from exporter.plugins.store.store_entry import (
    DamagedEntry,
    EvictionResult,
    StoredFile,
    StoreEntry,
    StoreLimits,
    create_scratch_file,
    evict,
    move_into_place,
    parse_entry,
    parse_header,
    serialize_entry,
)

T = TypeVar("T")

#: Characters of a key: 128 bits in hexadecimal digits.
MIN_KEY_LENGTH = 32
_UNSIGNED = b"unsigned"
_SCHEME = b"hmac-sha256 "
#: Prevents that a signature of another program with the same key is valid here.
_PURPOSE = b"onnx-exporter-matrix store entry\n"


class UntrustedEntry(Exception):
    """The signature of an entry is missing or wrong; the text describes it."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A secret that all trusted writers and readers have."""

    secret: bytes = field(repr=False)

    def sign(self, data: bytes) -> bytes:
        """Return the signature of these bytes."""
        digest = hmac.new(self.secret, _PURPOSE + data, hashlib.sha256)
        return _SCHEME + digest.hexdigest().encode()


def wrap(data: bytes, key: SigningKey | None) -> bytes:
    """Return an entry with its signature in the first line."""
    return (key.sign(data) if key else _UNSIGNED) + b"\n" + data


def unwrap(data: bytes, key: SigningKey | None) -> bytes:
    """Return the entry without its first line.

    Raises:
        UntrustedEntry: if there is a key and the entry is not signed with it.
    """
    signature, _, entry = data.partition(b"\n")
    if key and signature == _UNSIGNED:
        raise UntrustedEntry("not signed")
    if key and not hmac.compare_digest(signature, key.sign(entry)):
        raise UntrustedEntry("signed with another key or changed")
    return entry


#: Seconds that a run waits for a server: a few hundred cells at 10 MB/s.
TIMEOUT = 120.0
#: Seconds without a response after which a server counts as broken.
SILENCE = 20.0
#: Parallel requests. More of them are slower, because Python runs one thread at a time.
_READ_THREADS, _WRITE_THREADS = 8, 4
#: Seconds after which a used entry is written again. Local entries are kept longer.
_REFRESH_AGE = 7 * 24 * 3600.0
#: The time for `gc`, which lists all files.
_GC_SECONDS, _GC_SILENCE = 24 * 3600.0, 300.0
_TEST = "run `exporter doctor` to test the access"
#: Entries of one lookup key that are read. A writer may add any number of them.
_MAX_CANDIDATES = 32


class RemoteStore:
    """The cells at a URL.

    Args:
        label: The setting and the URL, for messages.
        open_files: Opens the files. It is called by the first request.
        limit: The time that a run waits.
        key: The key that signs entries, or None to trust all writers.
        is_read_only: True if the store is never written.
    """

    def __init__(
        self,
        label: str,
        open_files: Callable[[], RemoteFiles],
        limit: TimeLimit,
        key: SigningKey | None = None,
        *,
        is_read_only: bool = False,
    ) -> None:
        self.label = label
        #: Names of `StoreStatistics`.
        self.counts: Counter[str] = Counter()
        self.is_read_only = is_read_only
        self.has_key = key is not None
        self._open_files = open_files
        self._limit = limit
        self._key = key
        self._lock = threading.Lock()
        self._files: RemoteFiles | None = None
        self._reads = RequestPool(limit, _READ_THREADS)
        self._writes = RequestPool(limit, _WRITE_THREADS)
        self._is_stopped = False
        self._uploads: list[Request[None]] = []
        self._errors: list[str] = []
        self._rejected: Counter[str] = Counter()
        #: The times of the entries that were read.
        self._changed: dict[str, float] = {}
        #: Hashes with a wrong content in the remote store. An upload replaces them.
        self._damaged: set[str] = set()

    @property
    def waited_seconds(self) -> float:
        """The time that the run waited."""
        return self._limit.waited

    def find(self, keys: Collection[str]) -> dict[str, list[StoreEntry]]:
        """Return the entries of each lookup key, the newest first.

        Keys are the folders of the entries, such as `ab/cdef`.
        """
        requests = {key: self._reads.submit(partial(self._look_up, key)) for key in keys}
        self._reads.wait(list(requests.values()))
        self._collect_errors(requests.values())
        return {
            key: [entry for entries in request.results for entry in entries]
            for key, request in requests.items()
        }

    def download(
        self, files: Collection[StoredFile], scratch: Path, locate: Callable[[str], Path]
    ) -> int:
        """Write files into the local store. A file that is missing or damaged is skipped.

        The folder `scratch` must be on the same file system.

        Returns:
            The number of bytes.
        """
        requests = {
            file: self._reads.submit(partial(self._fetch, file, scratch, locate(file.sha256)))
            for file in sorted(files, key=lambda file: file.size)
        }
        self._reads.wait(list(requests.values()))
        self._collect_errors(requests.values())
        done = [file for file, request in requests.items() if True in request.results]
        size = sum(file.size for file in done)
        self._count(
            downloaded_files=len(done),
            downloaded_bytes=size,
            failed_downloads=len(requests) - len(done),
        )
        return size

    def upload(self, name: str, entry: StoreEntry, locate: Callable[[str], Path]) -> None:
        if not self.is_read_only:
            self._uploads.append(self._writes.submit(partial(self._send, name, entry, locate)))

    def refresh(self, name: str) -> None:
        """Write an old entry again, so that an eviction counts it as used."""
        changed = self._changed.get(name, 0.0)
        if not self.is_read_only and changed and time.time() - changed > _REFRESH_AGE:

            def refresh() -> None:
                data = b"".join(self._read(name, CELL_LIMIT))
                self._get_files().write(name, data)

            self._uploads.append(self._writes.submit(refresh))

    def remove(self, name: str) -> None:
        """Start the removal of an entry."""
        if not self.is_read_only:
            self._uploads.append(self._writes.submit(lambda: self._get_files().remove(name)))

    def flush(self) -> None:
        """Wait for the uploads within the time limit."""
        self._writes.wait(self._uploads)
        failed = [request for request in self._uploads if request.error or not request.is_done]
        self._count(failed_uploads=len(failed))
        if failed:
            error = next((request.error for request in failed if request.error), None)
            reason = self._writes.problem or describe_error(error)
            count = f"{len(failed)} of {pluralize(len(self._uploads), 'upload')}"
            self._errors.append(f"{count} failed: {reason}; {_TEST}")
        self._uploads = []

    def take_notes(self) -> list[str]:
        """Return the messages for the user since the last call."""
        notes = list(dict.fromkeys(self._errors))
        if self._rejected:
            reasons = ", ".join(f"{count} {reason}" for reason, count in self._rejected.items())
            count = sum(self._rejected.values())
            ignored = pluralize(count, "entry or file is", "entries or files are")
            notes.append(f"{ignored} ignored: {reasons}; their cells run")
        self._errors, self._rejected = [], Counter()
        return [f"{self.label}: {note}" for note in notes]

    def evict(self, limits: StoreLimits, *, dry_run: bool) -> EvictionResult:
        """Remove entries and files beyond the limits.

        Raises:
            OSError: if a request fails.
        """
        pool = RequestPool(TimeLimit(_GC_SECONDS, _GC_SILENCE), _READ_THREADS)
        [files] = pool.collect([pool.submit(self._get_files)])
        pool.collect([pool.submit(files.require_root)])
        [all_files] = pool.collect([pool.submit(files.list_all)])

        def call_all(function: Callable[[str], T], names: Sequence[str]) -> list[T]:
            return pool.collect([pool.submit(partial(function, name)) for name in names])

        def read(name: str) -> Sequence[StoredFile] | None:
            try:
                data = b"".join(files.read_chunks(name, CELL_LIMIT))
                return parse_header(unwrap(data, None)).files
            except FileNotFoundError:  # removed since the listing
                return ()
            except DamagedEntry:
                return None

        return evict(
            all_files,
            partial(call_all, read),
            partial(call_all, files.remove),
            limits,
            dry_run=dry_run,
        )

    def test_access(self) -> str:
        """Return why the store cannot be read, or ""."""
        request = self._reads.submit(lambda: self._get_files().require_root())
        self._reads.wait([request])
        if request.error:
            return describe_error(request.error)
        return "" if request.is_done else self._reads.problem

    def _look_up(self, key: str) -> list[StoreEntry]:
        found_files = self._get_files().list_folder(f"entries/{key}")
        found_files.sort(key=lambda file: file.changed, reverse=True)
        entries = []
        for file in found_files[:_MAX_CANDIDATES]:
            try:
                data = b"".join(self._read(file.name, CELL_LIMIT))
                entries.append(parse_entry(unwrap(data, self._key)))
                self._changed[file.name] = file.changed
            except FileNotFoundError:  # evicted since the listing
                continue
            except UntrustedEntry as error:
                self._reject(str(error))
            except DamagedEntry:
                self._reject("damaged")
        return entries

    def _fetch(self, file: StoredFile, scratch: Path, target: Path) -> bool:
        digest = hashlib.sha256()
        with create_scratch_file(scratch) as path:
            try:
                with path.open("xb") as writer:
                    for chunk in self._read(_name_blob(file), file.size):
                        digest.update(chunk)
                        writer.write(chunk)
            except FileNotFoundError:
                return False
            if digest.hexdigest() != file.sha256:
                with self._lock:
                    self._damaged.add(file.sha256)
                self._reject("files with a wrong hash")
                return False
            move_into_place(path, target)
        return True

    def _send(self, name: str, entry: StoreEntry, locate: Callable[[str], Path]) -> None:
        files = self._get_files()
        for file in entry.files:
            target = _name_blob(file)
            with self._lock:
                is_damaged = file.sha256 in self._damaged
            if is_damaged or files.find_size(target) != file.size:
                source = locate(file.sha256)
                if hash_source(source) != file.sha256:
                    raise OSError(f"{source} changed since the export")
                files.upload(source, target, self._writes.note_response)
                self._count(uploaded_files=1, uploaded_bytes=file.size)
            self._writes.note_response()
        files.write(name, wrap(serialize_entry(entry), self._key))
        self._count(uploaded_cells=1)

    def _read(self, name: str, size: int) -> Iterator[bytes]:
        """Yield the bytes of a file, and store the time of each response."""
        for chunk in self._get_files().read_chunks(name, size):
            self._reads.note_response()
            yield chunk

    def _get_files(self) -> RemoteFiles:
        with self._lock:
            if self._files is None:
                self._files = self._open_files()
                for pool in (self._reads, self._writes):
                    pool.note_response()
            return self._files

    def _collect_errors(self, requests: Iterable[Request[Any]]) -> None:
        """Create the message about failed reads."""
        if problem := self._reads.problem:
            if not self._is_stopped:
                self._is_stopped = True
                self._errors.append(f"it is not read any more in this run: {problem}; {_TEST}")
            if self._reads.has_timed_out:
                self._writes.stop(problem)
            return
        errors = [request.error for request in requests if request.error]
        if errors:
            count = pluralize(len(errors), "request")
            self._errors.append(f"{count} failed: {describe_error(errors[0])}; {_TEST}")

    def _count(self, **counts: int) -> None:
        with self._lock:
            self.counts.update(counts)

    def _reject(self, reason: str) -> None:
        with self._lock:
            self._rejected[reason] += 1
        self._count(rejected=1)


def _name_blob(file: StoredFile) -> str:
    return f"blobs/{file.sha256[:2]}/{file.sha256}"
