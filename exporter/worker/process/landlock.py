"""The sandbox of a worker by Landlock: a process gives up rights, also those of its children.

The process can read and execute as before. It cannot write elsewhere, use TCP, send signals to
other processes or open their memory. No privileges are necessary (Linux 6.12 or later).
https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from exporter.core.files import QUIET_FLAG
from exporter.core.system import IS_LINUX

#: System calls have the same numbers on all architectures.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38
#: The first version with signals; TCP came with version 4.
_MIN_VERSION = 6
#: The first version that restricts truncation; a move to another folder came with version 2.
_TRUNCATE_VERSION = 3
#: Write, remove, create, rename and truncate. Reading and execution are not restricted.
_WRITE = 1 << 1 | sum(1 << bit for bit in range(4, 15))
#: The rights that apply to a file that is no folder: write and truncate.
_WRITE_FILE = 1 << 1 | 1 << 14
_MAKE_FOLDER = 1 << 7
_TCP = 0b11
_SIGNALS_AND_SOCKETS = 0b11


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def find_obstacle() -> str:
    """Return why the system does not offer the sandbox, or "" if it does."""
    if not IS_LINUX:
        return "only Linux has Landlock"
    try:
        version = _call(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError as error:
        return f"this kernel does not offer Landlock ({error.strerror})"
    if version < _MIN_VERSION:
        return f"Landlock has version {version}, expected at least {_MIN_VERSION} (Linux 6.12)"
    return ""


def restrict_process(writable: Iterable[Path]) -> None:
    """Restrict this process and its later children; it cannot be undone.

    `writable`: The folders and files that remain writable.

    Raises:
        OSError: if the system refuses it.
    """
    if obstacle := find_obstacle():
        raise OSError(errno.EOPNOTSUPP, obstacle)
    _restrict(_Ruleset(_WRITE, _TCP, _SIGNALS_AND_SOCKETS), ctypes.sizeof(_Ruleset), writable)


def protect_folder(folder: Path, writable: Iterable[Path]) -> bool:
    """Refuse later writes of this process and its children below `folder`; it cannot be undone.

    New folders are allowed there. Beside the folder and its parents, paths that exist now remain
    writable.

    `writable`: Folders in it that remain writable, too.

    Returns:
        False if the system does not offer it.
    """
    try:
        if not IS_LINUX or _call(_CREATE_RULESET, None, 0, _VERSION_FLAG) < _TRUNCATE_VERSION:
            return False
        paths = [*_list_beside(folder.resolve()), *writable]
        # The first field is the whole structure of the first version.
        _restrict(_Ruleset(_WRITE & ~_MAKE_FOLDER), _Ruleset.network.offset, paths)
    except OSError:  # such as a filter of system calls
        return False
    return True


def _list_beside(folder: Path) -> Iterator[Path]:
    """Yield the paths beside a folder and beside its parents, without links."""
    for child in (folder, *folder.parents[:-1]):
        with suppress(OSError), os.scandir(child.parent) as entries:
            for entry in entries:
                if entry.name != child.name and not entry.is_symlink():
                    yield Path(entry.path)


def _restrict(rules: _Ruleset, size: int, writable: Iterable[Path]) -> None:
    """Restrict this thread, and the threads and processes that it starts, to these paths."""
    ruleset = _call(_CREATE_RULESET, ctypes.byref(rules), size, 0)
    allowed = int(rules.files)
    try:
        for path in writable:
            folder = os.open(path, os.O_PATH | os.O_CLOEXEC | QUIET_FLAG)
            try:
                rule = _PathRule(allowed if path.is_dir() else allowed & _WRITE_FILE, folder)
                _call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
            finally:
                os.close(folder)
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "privileges cannot be given up")
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _call(number: int, *arguments: object) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    values = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = int(library.syscall(ctypes.c_long(number), *values))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
