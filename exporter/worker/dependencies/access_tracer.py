"""Trace each file that a worker and its children open, in a process of its connection.

The worker cannot receive its own notifications, since native code opens files while no other
thread of Python can run. The tracer is a fork that ends with the worker.
"""

from __future__ import annotations

import array
import ctypes
import errno
import json
import os
import platform
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from exporter.core.system import IS_LINUX
from exporter.processes.lifetime import die_with_parent
from exporter.worker.dependencies.child_folders import ChildFolders
from exporter.worker.dependencies.file_access import Access, Lister

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_PTRACER = 0x59616D61
_SET_MODE_FILTER = 1
#: Without `SPEC_ALLOW`, kernels before 5.16 slow down every filtered process.
_SPEC_ALLOW, _NEW_LISTENER = 1 << 2, 1 << 3
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_CONTINUE = 1
#: Instructions of the filter: load a word, compare with a constant, return.
_LOAD, _EQUALS, _RETURN = 0x20, 0x15, 0x06
_NUMBER_OFFSET, _ARCH_OFFSET = 0, 4
#: `struct seccomp_notif`: id, pid, flags, number, architecture, instruction, six arguments.
_REQUEST = struct.Struct("=QIIiIQ6Q")
#: `struct seccomp_notif_resp`: id, value, error, flags.
_RESPONSE = struct.Struct("=QqiI")
_PATH_LIMIT = 4096
_AT_FDCWD = -100
_LIBC: Any = ctypes.CDLL(None, use_errno=True) if IS_LINUX else None


class OpeningCall(Enum):
    """The system calls that open a file by its path, with the positions of their arguments.

    The filter needs no privileges. It covers readers that Python does not see: native code, memory
    maps, databases and child processes.
    https://man7.org/linux/man-pages/man2/seccomp_unotify.2.html
    """

    #: Folder, path and flags; -1 if the call has no such argument.
    OPEN = (-1, 0, 1)
    OPENAT = (0, 1, 2)
    OPENAT2 = (0, 1, -2)  # the flags are the first word of a structure
    EXECVE = (-1, 0, -1)
    EXECVEAT = (0, 1, -1)


@dataclass(frozen=True, slots=True)
class _Architecture:
    """The numbers of the system calls of an architecture."""

    audit: int
    seccomp: int
    calls: dict[int, OpeningCall]


_ARCHITECTURES = {
    "x86_64": _Architecture(
        0xC000003E,
        317,
        {
            2: OpeningCall.OPEN,
            257: OpeningCall.OPENAT,
            437: OpeningCall.OPENAT2,
            59: OpeningCall.EXECVE,
            322: OpeningCall.EXECVEAT,
        },
    ),
    "aarch64": _Architecture(
        0xC00000B7,
        277,
        {
            56: OpeningCall.OPENAT,
            437: OpeningCall.OPENAT2,
            221: OpeningCall.EXECVE,
            281: OpeningCall.EXECVEAT,
        },
    ),
}


def install_filter(supervisor: int) -> int:
    """Install the filter for this thread, its later threads and its later children.

    The filter remains until the process ends. The supervisor receives the notifications.

    Raises:
        OSError: if the kernel refuses, for example because another filter sends notifications.
    """
    machine = _ARCHITECTURES[platform.machine()]
    # The supervisor reads the paths in the memory of this process.
    _LIBC.prctl(_PR_SET_PTRACER, supervisor, 0, 0, 0)
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        _raise_error()
    # The program notifies of the listed calls and allows all others.
    count = len(machine.calls)
    instructions = [
        (_LOAD, 0, 0, _ARCH_OFFSET),
        (_EQUALS, 1, 0, machine.audit),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
        *((_EQUALS, count - i, 0, number) for i, number in enumerate(machine.calls)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _NOTIFY),
    ]
    code = b"".join(struct.pack("=HBBI", *each) for each in instructions)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    listener = _LIBC.syscall(
        machine.seccomp, _SET_MODE_FILTER, _SPEC_ALLOW | _NEW_LISTENER, program
    )
    if listener < 0:
        _raise_error()
    return int(listener)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A file that a process is about to open or to execute."""

    identifier: int
    """For `resume`."""
    pid: int
    path: str
    """Absolute, or "" if it cannot be read."""
    flags: int
    is_program: bool
    is_absolute: bool
    """Whether the process named the path so."""


def receive_request(listener: int) -> Request | None:
    """Wait for the next file that a process is about to open; None if the caller was killed."""
    buffer = ctypes.create_string_buffer(_REQUEST.size)
    if _LIBC.ioctl(listener, ctypes.c_ulong(_RECEIVE), buffer) < 0:
        return None
    identifier, pid, _, number, _, _, *arguments = _REQUEST.unpack(buffer.raw)
    call = _ARCHITECTURES[platform.machine()].calls[number]
    folder, path, flags = call.value
    name = _read_string(pid, arguments[path])
    is_absolute = name.startswith("/")
    if name and not is_absolute:
        # The argument is a signed number of 32 bits.
        number = ctypes.c_int(arguments[folder] & 0xFFFFFFFF).value if folder >= 0 else _AT_FDCWD
        name = _resolve_name(pid, number, name)
    mode = arguments[flags] if flags >= 0 else os.O_RDONLY
    if call is OpeningCall.OPENAT2:
        words = _read_memory(pid, arguments[2], 8)
        mode = struct.unpack("=Q", words)[0] if len(words) == 8 else os.O_RDONLY
    # The memory of a killed process cannot be read, and another process may have its number.
    is_valid = _LIBC.ioctl(listener, ctypes.c_ulong(_IS_VALID), struct.pack("=Q", identifier)) == 0
    if not is_valid:
        return None
    return Request(
        identifier=identifier,
        pid=pid,
        path=name,
        flags=int(mode),
        is_program=call in (OpeningCall.EXECVE, OpeningCall.EXECVEAT),
        is_absolute=is_absolute,
    )


def resume(listener: int, identifier: int) -> None:
    """Let the process continue with its call."""
    response = _RESPONSE.pack(identifier, 0, 0, _CONTINUE)
    # The call fails only if the process was killed in the meantime.
    _LIBC.ioctl(listener, ctypes.c_ulong(_SEND), response)


def _resolve_name(pid: int, folder: int, name: str) -> str:
    """Return the absolute path of a relative name, or "" if its folder cannot be read."""
    link = f"/proc/{pid}/cwd" if folder == _AT_FDCWD else f"/proc/{pid}/fd/{folder}"
    with suppress(OSError):
        return f"{Path(link).readlink()}/{name}"
    return ""


def _read_string(pid: int, address: int) -> str:
    """Return the text at an address of a process; it may end at the end of a memory page."""
    data = b""
    while b"\0" not in data and len(data) < _PATH_LIMIT:
        part = _read_memory(pid, address + len(data), 256 - (address + len(data)) % 256)
        if not part:
            return ""
        data += part
    return os.fsdecode(data.partition(b"\0")[0])


def _read_memory(pid: int, address: int, size: int) -> bytes:
    with suppress(OSError, OverflowError), Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        memory.seek(address)
        return memory.read(size)
    return b""


def _raise_error() -> None:
    number = ctypes.get_errno() or errno.EPERM
    raise OSError(number, os.strerror(number))


#: The length of a message precedes it.
_LENGTH = struct.Struct("=Q")
#: Requests: report the new paths; remember the known ones; forget all others.
_REPORT, _MARK, _FORGET = b"r", b"m", b"f"
#: The response to the last two.
_DONE = b"d"


class AccessTracer:
    """The tracer of this process."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._accesses: list[Access] = []

    @classmethod
    def start(cls, tool_words: tuple[str, ...] = ()) -> AccessTracer | None:
        """Trace this process from now on; it cannot be undone.

        `tool_words`: Beginnings of a word in the commands of this tool, which report their files.

        Returns:
            None if the system has no such notifications or refuses them.
        """
        if not IS_LINUX or platform.machine() not in _ARCHITECTURES:
            return None
        connection, other = socket.socketpair()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            # With this copy of the other end, the tracer would not see that the worker closed its.
            connection.close()
            try:
                die_with_parent(parent)
                _, messages, _, _ = other.recvmsg(1, socket.CMSG_LEN(4))
                if messages:
                    (listener,) = array.array("i", messages[0][2][:4])
                    _collect(other, listener, tool_words)
            finally:
                os._exit(0)
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
        self._accesses.extend(
            Access(os.fsdecode(bytes.fromhex(path)), flags, Lister(lister))
            for path, flags, lister in new
        )
        return tuple(self._accesses)

    def forget(self, path_text: str) -> bool:
        """Forget a path that was opened since the last report; return whether it was reported."""
        count = len(self._accesses)
        new = self.list_accesses()[count:]
        self._accesses[count:] = [each for each in new if each.path != path_text]
        return any(each.path == path_text for each in new)

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


class _Collection:
    """The paths that the processes opened, each once."""

    def __init__(self, tool_words: tuple[str, ...]) -> None:
        self._seen: set[Access] = set()
        self._known: set[Access] = set()
        self._fresh: list[Access] = []
        self._folders = ChildFolders(tool_words)

    def add_request(self, request: Request) -> None:
        """Add a path, and the listing that waited for it."""
        pid, path, flags = request.pid, request.path, request.flags
        self._add(self._folders.decide(pid, path))
        if request.is_program:
            self._folders.start_program(pid, path)
        if (access := Access(path, flags)).is_folder:
            is_absolute = request.is_absolute
            self._add(self._folders.add_listing(pid, path, flags, is_absolute=is_absolute))
        else:
            self._add(access)

    def execute(self, command: bytes) -> bytes:
        """Return the response to a command."""
        for access in self._folders.give_up():
            self._add(access)
        if command == _MARK:
            self._known = set(self._seen)
            return _DONE
        if command == _FORGET:
            self._seen = set(self._known)
            self._fresh.clear()
            return _DONE
        accesses = [(os.fsencode(a.path).hex(), a.flags, a.lister) for a in self._fresh]
        self._fresh.clear()
        data = json.dumps(accesses).encode()
        return _LENGTH.pack(len(data)) + data

    def _add(self, access: Access | None) -> None:
        if access is not None and access not in self._seen:
            self._seen.add(access)
            self._fresh.append(access)


def _collect(connection: socket.socket, listener: int, tool_words: tuple[str, ...]) -> None:
    """Collect the paths until the worker and its children ended."""
    collection = _Collection(tool_words)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(connection, select.POLLIN)
    while True:
        for descriptor, event in poll.poll():
            if descriptor == listener and event & select.POLLIN:
                if (request := receive_request(listener)) is not None:
                    collection.add_request(request)
                    resume(listener, request.identifier)
            elif descriptor == listener:
                return  # no filtered process is left
            elif command := connection.recv(1):
                connection.sendall(collection.execute(command))
            else:
                # The worker closed it or ended. Its children still need the listener.
                poll.unregister(connection)
