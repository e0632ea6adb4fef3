"""Notifications of system calls that open files, by the seccomp filter of Linux.

The filter needs no privileges. It covers readers that Python does not see: native code, memory
maps, databases and child processes. https://man7.org/linux/man-pages/man2/seccomp_unotify.2.html
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

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
_LIBC: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class OpeningCall(Enum):
    """The system calls that open a file by its path, with the positions of their arguments."""

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


def is_supported() -> bool:
    """Return True if this system has the filter and this package knows its numbers."""
    return sys.platform == "linux" and platform.machine() in _ARCHITECTURES


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
    code = _compile_filter(machine)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    listener = _LIBC.syscall(
        machine.seccomp, _SET_MODE_FILTER, _SPEC_ALLOW | _NEW_LISTENER, program
    )
    if listener < 0:
        _raise_error()
    return int(listener)


def _compile_filter(machine: _Architecture) -> bytes:
    """Return a program that notifies of the listed calls and allows all others."""
    count = len(machine.calls)
    code = [
        (_LOAD, 0, 0, _ARCH_OFFSET),
        (_EQUALS, 1, 0, machine.audit),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
        *((_EQUALS, count - i, 0, number) for i, number in enumerate(machine.calls)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _NOTIFY),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def receive_request(listener: int) -> tuple[int, str, int] | None:
    """Wait for the next file that a process is about to open.

    Returns:
        The identifier for `resume`, the absolute path and the flags; None if the caller was killed.
        The path is "" if it cannot be read.
    """
    buffer = ctypes.create_string_buffer(_REQUEST.size)
    if _LIBC.ioctl(listener, ctypes.c_ulong(_RECEIVE), buffer) < 0:
        return None
    identifier, pid, _, number, _, _, *arguments = _REQUEST.unpack(buffer.raw)
    call = _ARCHITECTURES[platform.machine()].calls[number]
    folder, path, flags = call.value
    name = _read_string(pid, arguments[path])
    if name and not name.startswith("/"):
        name = _resolve_name(pid, _to_signed(arguments[folder]) if folder >= 0 else _AT_FDCWD, name)
    mode = arguments[flags] if flags >= 0 else os.O_RDONLY
    if call is OpeningCall.OPENAT2:
        words = _read_memory(pid, arguments[2], 8)
        mode = struct.unpack("=Q", words)[0] if len(words) == 8 else os.O_RDONLY
    # The memory of a killed process cannot be read, and another process may have its number.
    is_valid = _LIBC.ioctl(listener, ctypes.c_ulong(_IS_VALID), struct.pack("=Q", identifier)) == 0
    return (identifier, name, int(mode)) if is_valid else None


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


def _to_signed(value: int) -> int:
    return ctypes.c_int(value & 0xFFFFFFFF).value


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
