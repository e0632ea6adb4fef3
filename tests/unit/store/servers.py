"""Create stores of several machines beside one remote store, and servers that fail."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

from exporter.store import Store
from exporter.store.remote_store import RemoteStore
from exporter.store.store_entry import SigningKey
from exporter.store.store_files import Files, RemoteFiles, StoreFile, open_files
from tests.unit.store.cells import WIDE

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
        files: Files,
        fault: Callable[[], None],
        after: int = 0,
        kinds: tuple[str, ...] = ("read", "write"),
    ) -> None:
        self._server, self._fault, self._remaining, self._kinds = files, fault, after, kinds
        self.calls = 0

    def _check(self, kind: str) -> None:
        if kind in self._kinds:
            self.calls += 1
            self._remaining -= 1
            if self._remaining < 0:
                self._fault()

    def check_access(self) -> None:
        self._check("read")
        self._server.check_access()

    def list_files(self, folder: str = "") -> list[StoreFile]:
        self._check("read")
        return self._server.list_files(folder)

    def read(self, name: str) -> bytes:
        self._check("read")
        return self._server.read(name)

    def fetch(self, name: str, target: Path, size: int) -> None:
        self._check("read")
        self._server.fetch(name, target, size)

    def has(self, name: str, size: int) -> bool:
        self._check("write")
        return self._server.has(name, size)

    def write(self, name: str, content: bytes | Path) -> None:
        self._check("write")
        self._server.write(name, content)

    def remove(self, name: str) -> None:
        self._check("write")
        self._server.remove(name)


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
    files: Files,
    *,
    key: SigningKey | None = None,
    deadline: float = 20.0,
    is_read_only: bool = False,
) -> RemoteStore:
    label = "store: test://cells"
    return RemoteStore(label, files, key, is_read_only=is_read_only, deadline=deadline)


def make_machine(root: Path, remote: RemoteStore) -> Store:
    """Return the store of a build folder of its own."""
    return Store(root / "build" / ".store", WIDE, remote=remote)


def open_folder(path: Path) -> Files:
    return open_files(f"file://{path}")
