"""The files of a report onto the disk.

In: the reports folder and the text of every file. Out: these files, each whole; those of models
that no longer exist are removed, and nothing that was not written here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISREG

from exporter.core.atomic_files import forget_unfinished, write_text
from exporter.core.errors import ExitCode, ExporterError
from exporter.report.exports.all_exports import (
    BADGE,
    BADGES,
    CSV,
    JSON_MARK,
    JUNIT,
    MATRIX,
    SVG_MARK,
)
from exporter.report.pages.render_pages import (
    INDEX,
    MARK,
    OVERVIEW,
    PAGES,
)

#: Files of which there is one.
_ALONE = frozenset({OVERVIEW, INDEX, JUNIT, CSV, MATRIX, f"{BADGE}.svg", f"{BADGE}.json"})
#: Files of which each model has one: the folder, the suffix, and how ours begin.
_FOR_MODELS = (
    (PAGES, ".md", MARK),
    (BADGES, ".svg", SVG_MARK),
    (BADGES, ".json", JSON_MARK),
)
_MODEL = r"[a-z0-9][a-z0-9_.-]*"


def write_reports(folder: Path, files: Mapping[str, str]) -> None:
    """Writes every file and removes those of models that are gone.

    Args:
        folder: The reports folder; made where it is missing.
        files: All of them, as `render_reports` and `render_outputs` give them: a model's file that
            is not among them goes.

    Raises:
        ExporterError: ENVIRONMENT, where a file cannot be written or removed, or a folder of the
            models' files is a link.
        ValueError: where a name is none of a report's.
    """
    strange = [name for name in files if not _is_known(name)]
    if strange:
        raise ValueError(f"no names of a report's files: {strange}")
    for inner in dict.fromkeys(inner for inner, _, _ in _FOR_MODELS):
        if (folder / inner).is_symlink():
            message = f"{folder / inner}: is a link; reports are not written through one"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
    for name, text in sorted(files.items()):
        if not _stands(folder / name, text.encode()):
            write_text(folder / name, text)
    for place in (folder, *(folder / name for name in {inner for inner, _, _ in _FOR_MODELS})):
        forget_unfinished(place)
    for inner, suffix, mark in _FOR_MODELS:
        for path in sorted((folder / inner).glob(f"*{suffix}")):
            if f"{inner}/{path.name}" not in files and _is_ours(path, mark):
                _remove(path)


def _stands(path: Path, content: bytes) -> bool:
    """Whether a page is as it would be written; what is not written has not changed."""
    try:
        found = path.lstat()
        is_file = S_ISREG(found.st_mode)  # a link is no page
        return is_file and found.st_size == len(content) and path.read_bytes() == content
    except OSError:
        return False


def _is_known(name: str) -> bool:
    return name in _ALONE or any(
        re.fullmatch(rf"{inner}/{_MODEL}{re.escape(suffix)}", name)
        for inner, suffix, _ in _FOR_MODELS
    )


def _is_ours(path: Path, mark: str) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(mark.encode())) == mark.encode()
    except OSError:
        return False


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        message = f"{path}: cannot be removed: {error.strerror}"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error
