"""The files of a store: a folder, or the address of a server that fsspec supports.

Both have the same names and content. A reader sees a file when it is complete.
"""

from __future__ import annotations

import os
import re
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from exporter.cache.states import hash_source
from exporter.core.files import CELL_LIMIT, copy_file, read_regular_file, walk_files
from exporter.manifest.resolved.keys import split_url
from exporter.store.store_entry import (
    DamagedEntry,
    SigningKey,
    StoredFile,
    StoreEntry,
    name_entry,
    parse_entry,
)

#: Other files in a store are not its own, and stay.
ENTRY = re.compile(r"entries/[0-9a-f]{2}/[0-9a-f]{62}/[0-9a-f]{32}\.json")
#: Entries of one lookup key that are read. Each edit of a source adds one.
MAX_VARIANTS = 32
#: Files of one lookup key that are opened.
_MAX_FILES = 1024
#: Seconds by which the clock of another machine may be ahead.
_CLOCK_ERROR = 3600.0
#: How often a rename is retried if another process removes the folder.
_MAX_ATTEMPTS = 20
#: Options of a connection. By default, botocore waits a minute for each response and retries a
#: refused connection for half a minute.
_OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {
        "config_kwargs": {"connect_timeout": 5, "read_timeout": 20, "retries": {"max_attempts": 1}}
    },
}
#: Options of an upload: s3fs would keep ten parts of 50 MB in memory for each file.
_UPLOAD_OPTIONS = {
    "s3": {"chunksize": 1 << 23, "max_concurrency": 1},
    "gs": {"chunksize": 1 << 23},
}
#: Bytes of a web server that are copied at once.
_CHUNK = 1 << 20
#: Seconds that a web server may take for a response, without the time for its bytes.
_WEB_TIMEOUT = 20.0
#: Bytes per second. A slower server is not used, as one that sends a byte each second.
_SLOWEST = 1 << 15
#: Servers format listings in many ways. All contain the names of entries, which are long.
_ENTRY_NAME = re.compile(rb"\b[0-9a-f]{32}\.json\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFile:
    """A file of a store."""

    name: str
    size: int = 0
    changed: float = 0.0
    """Seconds since 1970, or 0 if the server does not report it: the last use of an entry."""


class LocalFiles:
    """The files in a folder. The first write creates it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def locate(self, name: str) -> Path:
        return self.path / name

    def list_files(self, prefix: str = "") -> list[StoreFile]:
        """Return the files below a folder; none if it does not exist. Links are omitted.

        Raises:
            OSError: if the folder cannot be listed.
        """
        self.check_access(prefix)
        return [
            StoreFile(
                name=path.relative_to(self.path).as_posix(),
                size=state.st_size,
                changed=state.st_mtime,
            )
            for path, state in walk_files(self.path / prefix)
        ]

    def has(self, name: str, size: int) -> bool:
        """Return True if a file of this size exists. Its content may be damaged."""
        try:
            state = self.locate(name).lstat()
        except OSError:
            return False
        return stat.S_ISREG(state.st_mode) and state.st_size == size

    def read(self, name: str) -> bytes:
        """Return the content of an entry.

        Raises:
            FileNotFoundError: if it does not exist.
            DamagedEntry: if it cannot be read.
        """
        try:
            return read_regular_file(self.locate(name), CELL_LIMIT)
        except FileNotFoundError:
            raise
        except OSError:
            raise DamagedEntry("damaged") from None

    def fetch(self, name: str, target: Path, size: int) -> None:
        """Create `target` with the content of a file of this size."""
        if not self.has(name, size):
            self.locate(name).lstat()
            raise DamagedEntry("damaged")
        copy_file(self.locate(name), target)

    def write(self, name: str, content: bytes | Path) -> None:
        """Write bytes, or the content of another file."""
        with self.create(name) as path:
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                copy_file(content, path)

    @contextmanager
    def create(self, name: str) -> Iterator[Path]:
        """Yield a path for the content. It is renamed at the end, or removed after an error."""
        scratch, target = self.path / "tmp" / uuid.uuid4().hex, self.locate(name)
        scratch.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield scratch
            for _ in range(_MAX_ATTEMPTS):
                target.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # another process removed the empty folder
                    scratch.replace(target)
                    return
            scratch.replace(target)
        finally:
            scratch.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists, and its folder, if it becomes empty."""
        path = self.locate(name)
        path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            path.parent.rmdir()

    def check_access(self, prefix: str = "") -> None:
        """Raise an error if a folder exists and cannot be listed. `walk_files` omits it."""
        with suppress(FileNotFoundError), os.scandir(self.path / prefix):
            pass


class RemoteFiles:
    """The files below a URL that fsspec supports. Errors are those of the server's package.

    The first use imports the package. Object stores show a file when it is complete, so it is
    written with its final name.

    Args:
        url: The URL, or another one of fsspec such as `memory://store`.
    """

    def __init__(self, url: str) -> None:
        self._scheme, self._root = split_url(url)

    @cached_property
    def _files(self) -> Any:
        import fsspec

        # Listings and instances of fsspec are cached, but other machines write to the store.
        options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
        if self._scheme not in fsspec.config.conf:
            options |= _OPTIONS.get(self._scheme, {})
        return fsspec.filesystem(self._scheme, **({} if self._scheme == "memory" else options))

    def check_access(self) -> None:
        """Raise an error if the bucket cannot be listed. The first upload creates a folder."""
        try:
            self._files.ls(self._root)
        except FileNotFoundError:
            self._files.ls(self._root.partition("/")[0])

    def list_files(self, prefix: str = "") -> list[StoreFile]:
        """Return the files of a folder without subfolders, or all files.

        The result is empty if the folder does not exist.
        """
        try:
            if prefix:
                items = self._files.ls(f"{self._root}/{prefix}", detail=True)
            else:
                items = self._files.find(self._root, detail=True).values()
        except FileNotFoundError:
            return []
        return [self._describe(item) for item in items if item["type"] == "file"]

    def has(self, name: str, size: int) -> bool:
        """Return True if a file of this size exists."""
        try:
            return bool(self._files.info(f"{self._root}/{name}")["size"] == size)
        except FileNotFoundError:
            return False

    def read(self, name: str) -> bytes:
        """Return the content of an entry."""
        content: bytes = self._files.cat_file(f"{self._root}/{name}")
        return content

    def fetch(self, name: str, target: Path, size: int) -> None:
        """Create `target` with the content of a file of this size."""
        if self._files.info(f"{self._root}/{name}")["size"] != size:
            raise DamagedEntry("damaged")
        self._files.get_file(f"{self._root}/{name}", str(target))

    def write(self, name: str, content: bytes | Path) -> None:
        """Write bytes, or the content of a local file."""
        target = f"{self._root}/{name}"
        if isinstance(content, bytes):
            self._files.pipe_file(target, content)
        else:
            options = _UPLOAD_OPTIONS.get(self._scheme, {})
            self._files.put_file(str(content), target, **options)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        with suppress(FileNotFoundError):
            self._files.rm_file(f"{self._root}/{name}")

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


class WebFiles(RemoteFiles):
    """The files of a web server that lists folders. They are only read, without a package."""

    def __init__(self, url: str) -> None:
        self._url = url

    def check_access(self) -> None:
        """Raise an error if the server does not list the folder."""
        self._open("").close()

    def list_files(self, prefix: str = "") -> list[StoreFile]:
        """Return the entries in a folder; none if it does not exist."""
        try:
            names = dict.fromkeys(_ENTRY_NAME.findall(self.read(f"{prefix}/")))
        except FileNotFoundError:
            return []
        return [StoreFile(name=f"{prefix}/{name.decode()}") for name in names]

    def read(self, name: str) -> bytes:
        """Return the content of an entry or the list of a folder."""
        return b"".join(self._read_chunks(name, CELL_LIMIT, 0))

    def fetch(self, name: str, target: Path, size: int) -> None:
        """Create `target` with the content of a file of this size.

        A server may send any number of bytes: at most one more is read.
        """
        with target.open("xb") as writer:
            writer.writelines(self._read_chunks(name, size + 1, size))

    def _read_chunks(self, name: str, limit: int, expected: int) -> Iterator[bytes]:
        """Yield at most `limit` bytes, of which a server sends the expected ones in time."""
        with self._open(name) as reader:
            until, remaining = time.monotonic() + _WEB_TIMEOUT + expected / _SLOWEST, limit
            while remaining and (chunk := reader.read1(min(remaining, _CHUNK))):
                if time.monotonic() > until:
                    raise TimeoutError("timed out")
                remaining -= len(chunk)
                yield chunk

    def _open(self, name: str) -> Any:
        from urllib.error import HTTPError
        from urllib.request import urlopen

        try:
            return urlopen(f"{self._url}/{name}", timeout=_WEB_TIMEOUT)  # noqa: S310 - `http`
        except HTTPError as error:
            error.close()
            if error.code in (404, 410):
                raise FileNotFoundError(f"HTTP status {error.code}") from None
            raise


Files = LocalFiles | RemoteFiles


def open_files(url: str) -> Files:
    """Return the files below a URL. A network drive is a folder."""
    scheme, rest = split_url(url)
    if scheme == "file":
        return LocalFiles(Path(rest))
    return WebFiles(url) if scheme in ("http", "https") else RemoteFiles(url)


def list_entries(files: Files, prefix: str) -> list[StoreFile]:
    """Return the entries in the folder of a lookup key, the newest first.

    Those of a machine whose clock is ahead are the last.
    """
    entries = [file for file in files.list_files(prefix) if ENTRY.fullmatch(file.name)]
    latest = time.time() + _CLOCK_ERROR
    return sorted(entries, key=lambda file: (file.changed <= latest, file.changed), reverse=True)


def read_entries(
    files: Files, prefix: str, key: SigningKey | None = None
) -> Iterator[StoreEntry | DamagedEntry]:
    """Yield the entries of a lookup key, or why one cannot be used; the newest is the first."""
    count = 0
    for file in list_entries(files, prefix)[:_MAX_FILES]:
        if count == MAX_VARIANTS:  # damaged ones hide no others
            return
        try:
            if file.size > CELL_LIMIT:
                raise DamagedEntry("damaged")
            entry = parse_entry(files.read(file.name), key)
            if name_entry(entry.record) != file.name:
                raise DamagedEntry("of another cell")
            count += 1
            yield entry.model_copy(update={"changed": file.changed})
        except FileNotFoundError:  # evicted since the listing
            continue
        except DamagedEntry as error:
            yield error


def mark_used(files: Files, name: str) -> None:
    """Write an entry again, so that an eviction counts it as used. It keeps its signature.

    Another user, who owns the file, may be the only one that can change its time.
    """
    files.write(name, files.read(name))


def fetch_verified(files: Files, file: StoredFile, target: Path) -> None:
    """Create `target` with the content of a cell's file.

    Raises:
        DamagedEntry: if the store has no such file, or one with another hash.
        OSError: if the store cannot be read or `target` cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        files.fetch(file.blob, target, file.size)
        # Only this process knows the new name: the file cannot change after the hash.
        if hash_source(target) != file.sha256:
            raise DamagedEntry("damaged")
    except BaseException as error:
        target.unlink(missing_ok=True)
        if isinstance(error, FileNotFoundError):
            raise DamagedEntry("missing") from None
        raise
