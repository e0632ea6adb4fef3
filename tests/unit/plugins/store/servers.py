"""Create stores of several machines beside one remote store, and servers that fail."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from exporter.plugins.store import Store
from exporter.plugins.store.remote_files import RemoteFiles, TimeLimit
from exporter.plugins.store.remote_store import RemoteStore, SigningKey
from exporter.plugins.store.store_entry import StoreFile
from tests.unit.plugins.store.cells import WIDE

KEY = SigningKey(b"0123456789abcdef0123456789abcdef")


class FaultyFiles(RemoteFiles):
    """The files of a server that fails in one way after a number of calls.

    Args:
        files: The files of the correct server.
        fault: Called in place of each later call.
        after: The number of correct calls.
        kinds: The calls that fail.
    """

    def __init__(
        self,
        files: RemoteFiles,
        fault: Callable[[], None],
        after: int = 0,
        kinds: tuple[str, ...] = ("read", "write"),
    ) -> None:
        self._files, self._fault, self._remaining, self._kinds = files, fault, after, kinds
        self.calls = 0

    def _check(self, kind: str) -> None:
        if kind in self._kinds:
            self.calls += 1
            self._remaining -= 1
            if self._remaining < 0:
                self._fault()

    def require_root(self) -> None:
        self._check("read")
        self._files.require_root()

    def list_folder(self, folder: str) -> list[StoreFile]:
        self._check("read")
        return self._files.list_folder(folder)

    def list_all(self) -> list[StoreFile]:
        self._check("read")
        return self._files.list_all()

    def read_chunks(self, name: str, size: int) -> Iterator[bytes]:
        self._check("read")
        return self._files.read_chunks(name, size)

    def find_size(self, name: str) -> int | None:
        self._check("write")
        return self._files.find_size(name)

    def write(self, name: str, data: bytes) -> None:
        self._check("write")
        self._files.write(name, data)

    def upload(self, source: Path, name: str, on_response: Callable[[], None]) -> None:
        self._check("write")
        self._files.upload(source, name, on_response)

    def remove(self, name: str) -> None:
        self._check("write")
        self._files.remove(name)


def hang() -> None:
    """Never return, like a server that accepts a connection and sends nothing."""
    threading.Event().wait(60.0)


def refuse() -> None:
    raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


def raise_full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def raise_foreign() -> None:
    """Raise an exception that is no OSError, as some packages do."""
    raise LookupError("no credentials\nlong explanation")


def make_remote(
    files: RemoteFiles,
    *,
    key: SigningKey | None = None,
    limit: TimeLimit | None = None,
    is_read_only: bool = False,
) -> RemoteStore:
    limit = limit or TimeLimit(20.0, 20.0)
    return RemoteStore("store: test://cells", lambda: files, limit, key, is_read_only=is_read_only)


def make_machine(root: Path, remote: RemoteStore) -> Store:
    """Return the store of a build folder of its own."""
    return Store(root / "build" / ".store", WIDE, remote=remote)


def open_folder(path: Path) -> RemoteFiles:
    return RemoteFiles(f"file://{path}")
