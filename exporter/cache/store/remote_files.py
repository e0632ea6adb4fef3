"""Read and write the files of a remote store by fsspec, or read those of a web server.

One interface of fsspec covers S3, Google Cloud and Azure. It is imported by the first request. Its
support of HTTP requires aiohttp, but Python can read a mirror without another package.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
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

from exporter.cache.store.eviction import StoreFile
from exporter.manifest.resolved.project import split_url

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
        """Return all files."""
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
        """Write a small file."""
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
        """Return the path to write."""
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
    """The files of a web server, which must list the content of folders. They are only read.

    Args:
        url: The URL.
    """

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
