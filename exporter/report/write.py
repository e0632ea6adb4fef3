"""Pages onto the disk.

In: the reports folder and the text of every page. Out: these files, each whole; pages of models
that no longer exist are removed, and nothing that was not written here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from exporter.errors import ExitCode, ExporterError
from exporter.files import write_text
from exporter.report.render import MARK, OVERVIEW, PAGES

_PAGE = re.compile(rf"{PAGES}/[a-z0-9][a-z0-9_.-]*\.md")


def write_reports(folder: Path, files: Mapping[str, str]) -> None:
    """Writes every page and removes those of models that are gone.

    Args:
        folder: The reports folder; made where it is missing.
        files: All of them, as `render_reports` gives them: a page that is not among them goes.

    Raises:
        ExporterError: ENVIRONMENT, where a file cannot be written or removed, or the pages' folder
            is a link.
        ValueError: where a name is no page's.
    """
    strange = [name for name in files if name != OVERVIEW and not _PAGE.fullmatch(name)]
    if strange:
        raise ValueError(f"no names of pages: {strange}")
    pages = folder / PAGES
    if pages.is_symlink():
        message = f"{pages}: is a link; pages are not written through one"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    for name, text in sorted(files.items()):
        write_text(folder / name, text)
    for path in sorted(pages.glob("*.md")):
        if f"{PAGES}/{path.name}" not in files and _is_ours(path):
            _remove(path)


def _is_ours(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(MARK.encode())) == MARK.encode()
    except OSError:
        return False


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        message = f"{path}: cannot be removed: {error.strerror}"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error
