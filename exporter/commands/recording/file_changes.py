"""Changes of a user's files: shown first, written together or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import (
    TEXT_LIMIT,
    read_regular_file,
    require_inside_checkout,
    write_text,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """The new text of one file."""

    path: Path
    text: str
    before: str | None = None
    """The present text; None if the file does not exist."""

    @property
    def action(self) -> str:
        if self.before is None:
            return "create"
        return "unchanged" if self.before == self.text else "extend"


def read_text(path: Path) -> str | None:
    """Return the text of a file of the user, or None if it does not exist.

    Raises:
        ExporterError: ENVIRONMENT if it cannot be read, is a symlink, which a change would
            replace, or is in a folder out of the repository; MANIFEST if it is no text.
    """
    if path.is_symlink():
        message = f"{path}: is a symlink; replace it by a file, and run the command again"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    require_inside_checkout(path)
    try:
        return read_regular_file(path, TEXT_LIMIT).decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ExporterError(ExitCode.MANIFEST, f"{path}: is not UTF-8; convert it") from error
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror}"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error


def apply_changes(changes: Sequence[FileChange]) -> None:
    """Write all changed files. After an error or Ctrl-C all files are as before.

    Raises:
        ExporterError: ENVIRONMENT if a file cannot be written, or changed in the meantime.
    """
    for change in changes:
        _require_writable(change.path)
        if read_text(change.path) != change.before:
            message = f"{change.path}: was changed in the meantime; run the command again"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
    written: list[FileChange] = []
    created: list[Path] = []
    try:
        for change in changes:
            if change.text != change.before:
                folders = [each for each in change.path.parents if not each.exists()]
                created += folders
                written.append(change)
                mode = change.path.stat().st_mode if change.before is not None else None
                write_text(change.path, change.text)
                if mode is not None:
                    change.path.chmod(mode)
    except BaseException:
        for change in reversed(written):
            if change.before is None:
                change.path.unlink(missing_ok=True)
            else:
                write_text(change.path, change.before)
        for folder in created:
            with suppress(OSError):  # another program uses it
                folder.rmdir()
        raise


def _require_writable(path: Path) -> None:
    """Raise an error before the first file is written if this one cannot be."""
    existing = next((each for each in (path, *path.parents) if each.exists()), path.parent)
    folder = existing if existing.is_dir() else existing.parent
    if path.is_dir() or (existing != path and not existing.is_dir()):
        problem = "is a folder" if path.is_dir() else f"{existing} is a file"
        raise ExporterError(ExitCode.ENVIRONMENT, f"{path}: {problem}; rename it")
    if not os.access(folder, os.W_OK | os.X_OK) or not os.access(existing, os.W_OK):
        message = f"{path}: no permission to write; change the permissions of {existing}"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
