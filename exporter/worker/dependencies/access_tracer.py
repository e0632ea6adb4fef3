"""Trace each file that a worker and its children open, in a process of its connection.

The worker cannot receive its own notifications, since native code opens files while no other
thread of Python can run. The tracer is a fork that ends with the worker.
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from exporter.processes.lifetime import die_with_parent
from exporter.worker.dependencies.seccomp import (
    install_filter,
    is_supported,
    receive_request,
    resume,
)

#: A file without a name in a folder, as `tempfile.TemporaryFile` creates it; only Linux has it.
_UNNAMED = getattr(os, "O_TMPFILE", -1)
#: The length of a message precedes it.
_LENGTH = struct.Struct("=Q")
#: Requests: report the new paths; remember the known ones; forget all others.
_REPORT, _MARK, _FORGET = b"r", b"m", b"f"
#: The response to the last two.
_DONE = b"d"


@dataclass(frozen=True, slots=True)
class Access:
    """A path that the process opened for the first time with these flags."""

    path: str
    """Absolute; "" if the tracer could not read it."""
    flags: int

    @property
    def is_write(self) -> bool:
        """Whether the call replaces the content or only writes."""
        only_writes = self.flags & os.O_ACCMODE == os.O_WRONLY
        is_emptied = bool(self.flags & (os.O_TRUNC | os.O_EXCL))  # the latter creates the file
        return only_writes or is_emptied or self._is_unnamed_file

    @property
    def is_folder(self) -> bool:
        """Whether the call lists a folder."""
        return bool(self.flags & os.O_DIRECTORY) and not self._is_unnamed_file

    @property
    def _is_unnamed_file(self) -> bool:
        return self.flags & _UNNAMED == _UNNAMED


class AccessTracer:
    """The tracer of this process."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._accesses: list[Access] = []

    @classmethod
    def start(cls) -> AccessTracer | None:
        """Trace this process from now on; it cannot be undone.

        Returns:
            None if the system has no such notifications or refuses them.
        """
        if not is_supported():
            return None
        connection, other = socket.socketpair()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            # With this copy of the other end, the tracer would not see that the worker closed its.
            connection.close()
            _run_tracer(other, parent)
        other.close()
        try:
            listener = install_filter(pid)
        except OSError:
            connection.close()  # the tracer ends
            os.waitpid(pid, 0)
            return None
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))]
        connection.sendmsg([b"l"], rights)
        # If the tracer ended, calls would wait forever; without this copy they fail.
        os.close(listener)
        return cls(connection)

    def list_accesses(self) -> tuple[Access, ...]:
        """Return all paths that were opened since the start, in the order of their first use."""
        self._connection.sendall(_REPORT)
        (length,) = _LENGTH.unpack(_receive(self._connection, _LENGTH.size))
        new = json.loads(_receive(self._connection, length))
        self._accesses.extend(Access(os.fsdecode(bytes.fromhex(p)), flags) for p, flags in new)
        return tuple(self._accesses)

    @contextmanager
    def separate(self) -> Iterator[None]:
        """Let a fork of this process report its files inside, and forget them at the end.

        A later fork that opens the same files reports them again.
        """
        self.list_accesses()
        self._command(_MARK)
        try:
            yield
        finally:
            self._command(_FORGET)

    def _command(self, command: bytes) -> None:
        """Send a command and wait until it is executed, before this process opens more files."""
        self._connection.sendall(command)
        _receive(self._connection, len(_DONE))


def _receive(connection: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = connection.recv(length - len(parts))
        if not part:
            raise OSError("the tracer of opened files ended")
        parts += part
    return bytes(parts)


def _run_tracer(connection: socket.socket, parent: int) -> NoReturn:
    """Collect the paths until the worker and its children ended."""
    try:
        die_with_parent(parent)
        _, messages, _, _ = connection.recvmsg(1, socket.CMSG_LEN(4))
        if messages:
            (listener,) = array.array("i", messages[0][2][:4])
            _collect(connection, listener)
    finally:
        os._exit(0)


def _collect(connection: socket.socket, listener: int) -> None:
    seen: set[tuple[str, int]] = set()
    known: set[tuple[str, int]] = set()
    fresh: list[tuple[str, int]] = []
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(connection, select.POLLIN)
    while True:
        for descriptor, event in poll.poll():
            if descriptor == listener and event & select.POLLIN:
                if (received := receive_request(listener)) is None:
                    continue
                identifier, path, flags = received
                if (path, flags) not in seen:
                    seen.add((path, flags))
                    fresh.append((path, flags))
                resume(listener, identifier)
            elif descriptor == listener:
                return  # no filtered process is left
            elif not (command := connection.recv(1)):
                # The worker closed it or ended. Its children still need the listener.
                poll.unregister(connection)
            elif command == _MARK:
                known = set(seen)
                connection.sendall(_DONE)
            elif command == _FORGET:
                seen = set(known)
                fresh.clear()
                connection.sendall(_DONE)
            else:
                accesses = [(os.fsencode(path).hex(), flags) for path, flags in fresh]
                data = json.dumps(accesses).encode()
                connection.sendall(_LENGTH.pack(len(data)) + data)
                fresh.clear()
