"""The folders of a publication: never behind a symlink and never over files of others.

Input: paths. Output: folders, each created by one rename.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.regular_files import CELL_LIMIT, read_regular_file
from exporter.tools.publish.published_folder import (
    MARKER,
    SUMS,
    Publication,
    list_files,
    read_listed_files,
)


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
