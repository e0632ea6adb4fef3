"""Repair the access to folders that a model, another user or another umask made inaccessible."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from exporter.core.errors import ExitCode, ExporterError

_ErrorInfo = tuple[type[BaseException], BaseException, TracebackType]

_FOLDER_ACCESS = stat.S_IRWXU
_FILE_ACCESS = stat.S_IRUSR | stat.S_IWUSR


def make_accessible(folder: Path, *, is_recursive: bool = True) -> None:
    """Give this user access to a folder or file, as far as the system permits it.

    Args:
        folder: The folder; need not exist.
        is_recursive: Whether its content becomes accessible, too.
    """
    with suppress(OSError):
        mode = folder.lstat().st_mode
        if stat.S_ISDIR(mode) and mode & _FOLDER_ACCESS != _FOLDER_ACCESS:
            folder.chmod(stat.S_IMODE(mode) | _FOLDER_ACCESS)
        elif stat.S_ISREG(mode) and mode & _FILE_ACCESS != _FILE_ACCESS:
            folder.chmod(stat.S_IMODE(mode) | _FILE_ACCESS)
        if stat.S_ISDIR(mode) and is_recursive:
            for path in folder.iterdir():
                make_accessible(path)


def remove_folder(folder: Path) -> None:
    """Remove a folder with its content, if it exists.

    Raises:
        ExporterError: ENVIRONMENT, if the system refuses it: with the path and its owner.
    """
    if not os.path.lexists(folder):
        return
    make_accessible(folder)

    def refuse(_function: object, name: str, reason: _ErrorInfo) -> None:
        text = os.strerror(getattr(reason[1], "errno", None) or 0)
        message = f"{name}: cannot be removed: {text}{describe_owner(Path(name))}"
        raise ExporterError(ExitCode.ENVIRONMENT, message)

    shutil.rmtree(folder, onerror=refuse)


def describe_owner(path: Path) -> str:
    """Return the end of a message about a refused access, or "" if the owner is this user."""
    if not hasattr(os, "geteuid"):
        return ""
    # Removing a file needs access to its folder.
    for each in (path, path.parent):
        with suppress(OSError):
            owner = each.lstat().st_uid
            if owner != os.geteuid():
                return (
                    f"; {each} belongs to {_name_user(owner)}: remove it as that user, or name "
                    "another folder as `build` in [tool.exporter]"
                )
    return ""


def list_inaccessible(folder: Path) -> Iterator[Path]:
    """Yield the paths in a folder that this user cannot read, and folders it cannot change."""
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        yield folder
        return
    for path in paths:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            continue
        needed = os.R_OK | (os.W_OK | os.X_OK if stat.S_ISDIR(mode) else 0)
        if not os.access(path, needed, effective_ids=os.access in os.supports_effective_ids):
            yield path
        elif stat.S_ISDIR(mode):
            yield from list_inaccessible(path)


def _name_user(user: int) -> str:
    try:
        import pwd  # Windows has no such module

        return f"the user {pwd.getpwuid(user).pw_name}"
    except (ImportError, KeyError):
        return f"the user {user}"
