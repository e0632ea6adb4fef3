"""The folders of a publication: never behind a symlink and never over files of others."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import CELL_LIMIT, read_regular_file
from exporter.tools.publish.published_folder import (
    MARKER,
    SUMS,
    Publication,
    list_files,
    read_listed_files,
)

#: The start of the name of the folder of a run. A model ID cannot start with a dot.
_PRIVATE = ".publish-"
_LOCK = ".lock"
#: Seconds.
_MIN_AGE = 60.0


def prepare_destination(destination: Path, build: Path) -> Path:
    """Return the absolute path of the folder, and create it if it is missing.

    Raises:
        ExporterError: ENVIRONMENT if it is a symlink, a file, or inside the build folder.
    """
    problem = ""
    if destination.is_symlink():
        problem = "is a symlink; name another folder"
    elif destination.exists() and not destination.is_dir():
        problem = "is not a folder; name another one"
    elif destination.resolve().is_relative_to(build.resolve()):
        problem = "is in the build folder, which is temporary; name another folder"
    if problem:
        raise ExporterError(ExitCode.ENVIRONMENT, f"{destination}: {problem}")
    destination.mkdir(parents=True, exist_ok=True)
    return destination.resolve()


@contextmanager
def open_private_folder(destination: Path) -> Iterator[Path]:
    """Yield a new folder in the destination, and remove those of killed runs.

    Each run locks its folder, so an unlocked one belongs to no run.
    """
    for path in destination.glob(f"{_PRIVATE}*"):
        # Between its creation and its lock, a folder of another run is young.
        if not path.is_symlink() and time.time() - path.lstat().st_mtime > _MIN_AGE:
            with suppress(Timeout, OSError), FileLock(path / _LOCK, timeout=0):
                shutil.rmtree(path, ignore_errors=True)
    private = Path(tempfile.mkdtemp(prefix=_PRIVATE, dir=destination))
    with FileLock(private / _LOCK):
        try:
            yield private
        finally:
            shutil.rmtree(private, ignore_errors=True)


def find_obstacle(final: Path) -> str:
    """Return the reason against writing the folder `final`.

    Returns:
        "" if nothing exists there, or only a folder that `publish` wrote.
    """
    for path in (final.parent, final):
        if path.is_symlink():
            return f"{path.name} is a symlink in {path.parent.name}; remove it"
        if path.exists() and not path.is_dir():
            return f"{path.name} is not a folder in {path.parent.name}; remove it"
    if not final.exists():
        return ""
    try:
        Publication.model_validate_json(read_regular_file(final / MARKER, CELL_LIMIT))
        expected = read_listed_files(final) | {SUMS}
    except (OSError, ValueError):
        return "the existing folder was not written by `exporter publish`; move it away"
    if others := set(list_files(final)) - expected:
        return f"the existing folder contains other files: {min(others)}; move them away"
    return ""


def move_into_place(staged: Path, final: Path) -> None:
    """Rename `staged` to `final` and remove an older publication.

    Raises:
        ExporterError: ENVIRONMENT if the path is occupied in the meantime.
    """
    if reason := find_obstacle(final):
        raise ExporterError(ExitCode.ENVIRONMENT, f"{final.parent.name}/{final.name}: {reason}")
    final.parent.mkdir(exist_ok=True)
    if not final.exists():
        staged.rename(final)
        return
    old = Path(tempfile.mkdtemp(prefix="old-", dir=staged.parent)) / final.name
    final.rename(old)
    try:
        staged.rename(final)
    except BaseException:
        old.rename(final)
        raise
    shutil.rmtree(old)
