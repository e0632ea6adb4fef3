"""Find cells in a remote store, download their files and upload new cells, within a deadline."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from exporter.cache.states import hash_source
from exporter.core.text import pluralize
from exporter.store.eviction import EvictionResult, StoreLimits, evict
from exporter.store.store_entry import (
    DamagedEntry,
    SigningKey,
    StoredFile,
    StoreEntry,
    name_entry,
    name_folder,
    serialize_entry,
)
from exporter.store.store_files import (
    Files,
    LocalFiles,
    fetch_verified,
    mark_used,
    read_entries,
)

T = TypeVar("T")
K = TypeVar("K")

#: Seconds that a run waits for a server: a few hundred cells at 10 MB/s.
DEADLINE = 120.0
#: The same for `gc`, which lists all files.
_GC_DEADLINE = 24 * 3600.0
#: Parallel requests. More of them are slower, because Python runs one thread at a time.
_THREADS = 8
#: Failures in a row after which the server is not used any more.
_MAX_FAILURES = 3
#: Seconds after which a used entry is written again. Local entries are kept longer.
_REFRESH_AGE = 7 * 24 * 3600.0


class Requests:
    """Calls in threads, and the time that the program may wait for them.

    A thread that waits for a server cannot be ended, so the threads are daemons: the program exits
    without them. The pools of `concurrent.futures` wait for theirs.
    """

    def __init__(self, deadline: float) -> None:
        self.waited = 0.0
        """Seconds."""
        self.problem = ""
        """Why no call runs any more, or ""."""
        self.errors: list[str] = []
        self._deadline = deadline
        self._queue: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._threads = 0
        self._failures = 0

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Start a call in the background."""
        future: Future[T] = Future()
        self._queue.put((future, partial(function, *arguments)))
        if self._threads < _THREADS:
            self._threads += 1
            threading.Thread(target=self._work, daemon=True).start()
        return future

    def wait(self, futures: Iterable[Future[T]]) -> list[Future[T]]:
        """Wait for calls until the deadline. Return those that have a result."""
        start = time.monotonic()
        seconds = max(0.0, self._deadline - self.waited)
        done, pending = concurrent.futures.wait(futures, seconds)
        self.waited += time.monotonic() - start
        if pending and not self.problem:
            self.problem = f"the time limit of {self._deadline:g} s is exceeded"
        return [each for each in done if not each.cancelled() and each.exception() is None]

    def call_all(self, function: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
        """Return the results for all items.

        Raises:
            OSError: if a call failed or was not complete at the deadline.
        """
        futures = [self.submit(function, item) for item in items]
        if len(self.wait(futures)) < len(futures):
            raise OSError(self.errors[0] if self.errors else self.problem)
        return [future.result() for future in futures]

    def _work(self) -> None:
        while True:
            future, call = self._queue.get()
            if self.problem:
                future.cancel()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 - clients of stores have no common base class
                self._failures += 1
                self.errors.append(_describe_error(error))
                # A second request to a server that hangs would wait as long.
                is_hung = isinstance(getattr(error, "reason", error), TimeoutError)
                if is_hung or self._failures >= _MAX_FAILURES:
                    self.problem = self.problem or self.errors[-1]
                future.set_exception(error)
            else:
                self._failures = 0
                future.set_result(result)


def _describe_error(error: Exception) -> str:
    """Return one line with the text of an exception, or its class if it has none."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    lines = text.strip().splitlines()
    return lines[0] if lines else type(error).__name__


class RemoteStore:
    """The cells at a URL.

    Args:
        label: The setting and the URL, for messages.
        files: The files at the URL.
        key: The key that signs entries, or None to trust all writers.
        is_read_only: True if the store is never written.
        deadline: The seconds that a run waits.
    """

    def __init__(
        self,
        label: str,
        files: Files,
        key: SigningKey | None = None,
        *,
        is_read_only: bool = False,
        deadline: float = DEADLINE,
    ) -> None:
        self.label = label
        self.is_read_only = is_read_only
        self.has_key = key is not None
        self._files = files
        self._key = key
        self._requests = Requests(deadline)
        self._is_stopped = False
        self._uploads: list[Future[list[StoredFile] | None]] = []
        self._rejected: Counter[str] = Counter()
        #: Hashes of damaged files in the remote store. An upload replaces them.
        self._lost: set[str] = set()

    @property
    def waited_seconds(self) -> float:
        return self._requests.waited

    def find(self, keys: Collection[str]) -> dict[str, list[StoreEntry]]:
        """Return the entries of each lookup key that can be read, the newest first."""

        def look_up(key: str) -> list[StoreEntry | DamagedEntry]:
            return list(read_entries(self._files, name_folder(key), self._key))

        results = self._call(look_up, keys)
        self._reject(each for entries in results.values() for each in entries)
        return {
            key: [each for each in entries if isinstance(each, StoreEntry)]
            for key, entries in results.items()
        }

    def download(self, files: Collection[StoredFile], local: LocalFiles) -> int:
        """Copy files into the local store. A file that is missing or damaged is skipped.

        Returns:
            The number of bytes.
        """

        def fetch(file: StoredFile) -> DamagedEntry | None:
            try:
                with local.create(file.blob) as path:
                    fetch_verified(self._files, file, path)
            except DamagedEntry as error:
                self._lost.add(file.sha256)
                return error
            return None

        fetched = self._call(fetch, sorted(files, key=lambda file: file.size))
        self._reject(fetched.values())
        return sum(file.size for file, problem in fetched.items() if problem is None)

    def upload(self, store_entry: StoreEntry, local: LocalFiles) -> None:
        """Start to write an entry after its files."""

        def send() -> list[StoredFile]:
            new = [
                file
                for file in store_entry.files
                if file.sha256 in self._lost or not self._files.has(file.blob, file.size)
            ]
            for file in new:
                source = local.locate(file.blob)
                if hash_source(source) != file.sha256:
                    raise OSError(f"{source} changed since the export")
                self._files.write(file.blob, source)
            self._files.write(
                name_entry(store_entry.record), serialize_entry(store_entry, self._key)
            )
            return new

        self._write(send)

    def mark_used(self, store_entry: StoreEntry) -> None:
        """Start to mark an entry that was not used for some days."""
        if store_entry.changed and time.time() - store_entry.changed > _REFRESH_AGE:
            self._write(partial(mark_used, self._files, name_entry(store_entry.record)))

    def remove(self, name: str) -> None:
        """Start to remove an entry."""
        self._write(partial(self._files.remove, name))

    def flush(self) -> list[list[StoredFile]]:
        """Wait for the uploads. Return the new files of each uploaded cell."""
        done = [future.result() for future in self._requests.wait(self._uploads)]
        self._uploads = []
        return [files for files in done if files is not None]

    def take_notes(self) -> list[str]:
        """Return the messages for the user since the last call."""
        notes, end = [], "run `exporter doctor` to test the access"
        errors, self._requests.errors = self._requests.errors, []
        if problem := self._requests.problem:
            if not self._is_stopped:
                notes.append(f"it is not used any more in this run: {problem}; {end}")
            self._is_stopped = True
        elif errors:
            notes.append(f"{pluralize(len(errors), 'request')} failed: {errors[0]}; {end}")
        if self._rejected:
            reasons = ", ".join(f"{count} {reason}" for reason, count in self._rejected.items())
            count = self._rejected.total()
            ignored = pluralize(count, "entry or file is", "entries or files are")
            notes.append(f"{ignored} ignored: {reasons}; their cells run")
            self._rejected.clear()
        return [f"{self.label}: {note}" for note in notes]

    def evict(self, limits: StoreLimits, *, dry_run: bool) -> EvictionResult:
        """Remove entries and files beyond the limits. Its time is not that of a run.

        Raises:
            OSError: if a request fails.
        """
        requests = Requests(_GC_DEADLINE)
        requests.call_all(lambda files: files.check_access(), [self._files])
        return evict(self._files, limits, dry_run=dry_run, call_all=requests.call_all)

    def test_access(self) -> str:
        """Return why the store cannot be read, or ""."""
        try:
            self._requests.call_all(lambda files: files.check_access(), [self._files])
        except OSError as error:
            return str(error)
        return ""

    def _call(self, function: Callable[[K], T], items: Iterable[K]) -> dict[K, T]:
        """Call a function for each item. Return the results of the calls that succeed."""
        futures = {self._requests.submit(function, item): item for item in items}
        done = self._requests.wait(futures)
        return {futures[future]: future.result() for future in done}

    def _write(self, function: Callable[[], list[StoredFile] | None]) -> None:
        if not self.is_read_only:
            self._uploads.append(self._requests.submit(function))

    def _reject(self, results: Iterable[object]) -> None:
        self._rejected.update(str(each) for each in results if isinstance(each, DamagedEntry))
