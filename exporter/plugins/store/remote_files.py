"""Read and write the files of a remote store by fsspec, or read those of a web server.

One interface of fsspec covers S3, Google Cloud and Azure. It is imported by the first request. Its
support of HTTP requires aiohttp, but Python can read a mirror without another package.

A thread that waits for a server cannot be ended, so the threads are daemons: the program exits
without them. The pools of `concurrent.futures` wait for theirs.
"""

from __future__ import annotations

import math
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    UnknownHandler,
)

from exporter.manifest.resolved.keys import split_url
from exporter.plugins.store.store_entry import StoreFile

#: Bytes of one request. Eight of them at 2 MB/s take 16 s, less than the time for a response.
CHUNK = 1 << 22
#: Options of an upload: parts of 8 MiB, whose responses show that the server is not broken.
_UPLOAD_OPTIONS = {
    "s3": {"chunksize": 1 << 23, "max_concurrency": 1},
    "gs": {"chunksize": 1 << 23},
}
#: Options of a connection. By default, botocore retries a refused connection for half a minute.
_CONNECTION_OPTIONS = {
    "s3": {"config_kwargs": {"connect_timeout": 5, "retries": {"max_attempts": 1}}},
}
#: The folder of incomplete uploads.
_SCRATCH = "tmp"


class RemoteFiles:
    """The files below a URL that fsspec supports. Errors are those of the server's package.

    Args:
        url: The URL, or another one of fsspec such as `memory://store`.
    """

    def __init__(self, url: str) -> None:
        import fsspec

        scheme, rest = split_url(url)
        # Listings and instances of fsspec are cached, but other machines write to the store.
        options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
        if scheme not in fsspec.config.conf:
            options |= _CONNECTION_OPTIONS.get(scheme, {})
        self._files = fsspec.filesystem(scheme, **({} if scheme == "memory" else options))
        self._root = rest
        self._bucket = "" if scheme in ("file", "memory") else rest.partition("/")[0]
        self._upload_options = _UPLOAD_OPTIONS.get(scheme, {})
        # Object stores show a file when it is complete. A folder shows its growing files.
        self._needs_rename = scheme == "file"

    def require_root(self) -> None:
        """Raise an error if the bucket cannot be listed. The first upload creates a folder."""
        try:
            self._files.ls(self._root)
        except FileNotFoundError:
            if self._bucket:
                self._files.ls(self._bucket)

    def list_folder(self, folder: str) -> list[StoreFile]:
        """Return the files of a folder; empty if it does not exist."""
        try:
            items = self._files.ls(f"{self._root}/{folder}", detail=True)
        except FileNotFoundError:
            return []
        files = (self._describe(item) for item in items if item["type"] == "file")
        return [file for file in files if file.name.startswith(f"{folder}/")]

    def list_all(self) -> list[StoreFile]:
        try:
            items = self._files.find(self._root, detail=True).values()
        except FileNotFoundError:
            return []
        return [self._describe(item) for item in items]

    def read_chunks(self, name: str, size: int) -> Iterator[bytes]:
        """Yield at most `size` bytes from the start of a file.

        Raises:
            FileNotFoundError: if the file does not exist.
        """
        for start in range(0, size, CHUNK):
            end = min(start + CHUNK, size)
            chunk: bytes = self._files.cat_file(f"{self._root}/{name}", start=start, end=end)
            yield chunk
            if len(chunk) < end - start:
                return

    def find_size(self, name: str) -> int | None:
        """Return the bytes of a file, or None if it does not exist."""
        try:
            size: int = self._files.info(f"{self._root}/{name}")["size"]
        except FileNotFoundError:
            return None
        return size

    def write(self, name: str, data: bytes) -> None:
        target = self._prepare(name)
        self._files.pipe_file(target, data)
        self._complete(target, name)

    def upload(self, source: Path, name: str, on_response: Callable[[], None]) -> None:
        """Write the content of a local file. `on_response` is called after each part of it."""
        from fsspec.callbacks import Callback

        target = self._prepare(name)
        callback = Callback(hooks={"response": lambda *_, **__: on_response()})
        self._files.put_file(str(source), target, callback=callback, **self._upload_options)
        self._complete(target, name)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        with suppress(FileNotFoundError):
            self._files.rm_file(f"{self._root}/{name}")

    def _prepare(self, name: str) -> str:
        if not self._needs_rename:
            return f"{self._root}/{name}"
        for folder in (_SCRATCH, name.rpartition("/")[0]):
            self._files.makedirs(f"{self._root}/{folder}", exist_ok=True)
        return f"{self._root}/{_SCRATCH}/{uuid.uuid4().hex}"

    def _complete(self, target: str, name: str) -> None:
        if self._needs_rename:
            Path(target).replace(f"{self._root}/{name}")

    def _describe(self, item: dict[str, Any]) -> StoreFile:
        # Each package has its own key for the time, and some omit the leading slash of a name.
        keys = ("mtime", "LastModified", "last_modified", "updated", "created")
        time = next((item[key] for key in keys if item.get(key)), 0.0)
        if isinstance(time, str):
            time = datetime.fromisoformat(time)
        changed = time.timestamp() if isinstance(time, datetime) else float(time)
        path = item["name"].strip("/")
        name = path.removeprefix(self._root.strip("/")).lstrip("/")
        return StoreFile(name=name, size=item["size"] or 0, changed=changed)


#: Seconds after which a blocked read ends.
_SOCKET_TIMEOUT = 60.0
_ENTRY_NAME = re.compile(rb"\b[0-9a-f]{32}\.json\b")
#: The opener of urllib without `file:` and `ftp:`, to which a server could redirect.
_HANDLERS = (
    ProxyHandler,
    UnknownHandler,
    HTTPHandler,
    HTTPSHandler,
    HTTPRedirectHandler,
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
)


class HttpFiles(RemoteFiles):
    """The files of a web server, which must list the content of folders. They are only read."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opener = OpenerDirector()
        for handler in _HANDLERS:
            self._opener.add_handler(handler())

    def require_root(self) -> None:
        """Raise an error if the server does not list the folder."""
        for _ in self.read_chunks("", CHUNK):
            break

    def list_folder(self, folder: str) -> list[StoreFile]:
        """Return the entries in a folder; empty if it does not exist.

        Servers format listings in many ways. All of them contain the names of entries, which are
        long and regular.
        """
        try:
            page = b"".join(self.read_chunks(f"{folder}/", CHUNK))
        except FileNotFoundError:
            return []
        names = dict.fromkeys(_ENTRY_NAME.findall(page))
        return [StoreFile(name=f"{folder}/{name.decode()}") for name in names]

    def read_chunks(self, name: str, size: int) -> Iterator[bytes]:
        """Yield at most `size` bytes from the start of a file."""
        try:
            with self._opener.open(f"{self._url}/{quote(name)}", timeout=_SOCKET_TIMEOUT) as reader:
                while size > 0 and (chunk := reader.read(min(size, CHUNK))):
                    size -= len(chunk)
                    yield chunk
        except HTTPError as error:
            error.close()
            if error.code in (404, 410):
                raise FileNotFoundError(f"HTTP status {error.code}") from None
            raise OSError(f"HTTP status {error.code}: {error.reason}") from None


def open_files(url: str) -> RemoteFiles:
    """Return the files below a URL. Those of a web server can only be read."""
    if split_url(url)[0] in ("http", "https"):
        return HttpFiles(url)
    return RemoteFiles(url)


T = TypeVar("T")

#: Failures in a row after which the server is not used any more.
MAX_FAILURES = 3


class TimeLimit:
    """The time that a run may wait.

    Args:
        total: The seconds of all waits together.
        silence: The seconds without any response after which a server counts as broken.
    """

    def __init__(self, total: float, silence: float) -> None:
        self.total = total
        self.silence = min(silence, total)
        self.waited = 0.0

    @property
    def remaining(self) -> float:
        """The seconds that are left."""
        return max(0.0, self.total - self.waited)


class Request(Generic[T]):
    """A call that a thread runs."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self.is_done = False
        self.results: list[T] = []
        """The result, or nothing if the call failed."""
        self.error: Exception | None = None

    def run(self) -> None:
        """Call the function. Its exception becomes the value of `error`."""
        try:
            self.results.append(self._call())
        except Exception as error:  # noqa: BLE001 - clients of stores have no common base class
            self.error = error


class RequestPool:
    """Threads for the requests of one kind: reads or writes.

    Other pools may share the limit.
    """

    def __init__(self, limit: TimeLimit, threads: int) -> None:
        self.problem = ""
        """Why no request runs any more, or ""."""
        self.has_timed_out = False
        self._limit = limit
        self._queue: SimpleQueue[Request[Any]] = SimpleQueue()
        self._changed = threading.Condition()
        #: The first request may import a package, which is not the silence of the server.
        self._last_response = math.inf
        self._max_threads = threads
        self._threads = 0
        self._unfinished = 0
        self._failures = 0

    def submit(self, call: Callable[[], T]) -> Request[T]:
        """Start a request in the background."""
        request = Request(call)
        with self._changed:
            self._unfinished += 1
            if self._threads < min(self._max_threads, self._unfinished):
                self._threads += 1
                threading.Thread(target=self._work, daemon=True).start()
        self._queue.put(request)
        return request

    def note_response(self) -> None:
        """Store the time of a response, such as a part of a large file."""
        with self._changed:
            self._last_response = time.monotonic()
            self._changed.notify_all()

    def wait(self, requests: Sequence[Request[T]]) -> None:
        """Wait for requests, unless the pool stops or the time limit is exceeded."""
        start = time.monotonic()
        end = start + self._limit.remaining
        with self._changed:
            self._last_response = max(self._last_response, start)
            for request in requests:
                while not (request.is_done or self.problem):
                    now = time.monotonic()
                    seconds = min(end, self._last_response + self._limit.silence) - now
                    if seconds <= 0:
                        self.problem = f"no response for {self._limit.silence:g} s"
                        if end <= now:
                            self.problem = f"the time limit of {self._limit.total:g} s is exceeded"
                        self.has_timed_out = True
                        break
                    self._changed.wait(seconds)
        self._limit.waited += time.monotonic() - start

    def collect(self, requests: Sequence[Request[T]]) -> list[T]:
        """Wait for requests and return their results.

        Raises:
            OSError: if one of them failed or the pool stopped.
        """
        self.wait(requests)
        for request in requests:
            if request.error:
                raise OSError(describe_error(request.error))
        if self.problem:
            raise OSError(self.problem)
        return [result for request in requests for result in request.results]

    def stop(self, problem: str) -> None:
        with self._changed:
            self.problem = self.problem or problem
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            request = self._queue.get()
            if not self.problem:
                request.run()
                request.is_done = True
            with self._changed:
                self._unfinished -= 1
                if request.is_done:
                    self._last_response = time.monotonic()
                    self._failures = self._failures + 1 if request.error else 0
                    if self._failures == MAX_FAILURES:
                        self.problem = describe_error(request.error)
                self._changed.notify_all()


def describe_error(error: Exception | None) -> str:
    """Return one line with the text of an exception, or its class if it has none."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    lines = text.strip().splitlines()
    return lines[0] if lines else type(error).__name__
