"""The files of a report: the ones for other programs, and all of them on disk."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISREG

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import remove_unfinished_files, write_bytes
from exporter.manifest import Manifest
from exporter.records.record import RunRecord
from exporter.report.exports import NAME_PATTERN, PLUGINS
from exporter.report.pages.page_files import INDEX, MARK, OVERVIEW, PAGES
from exporter.report.rows.cells import AcceptanceHistory, collect_cells

JUNIT = "junit.xml"
CSV = "results.csv"
MATRIX = "matrix.svg"
BADGE = "badge"
#: The folder of the models' badges. Only files that begin with a mark belong to the report.
BADGES = "badges"
#: The folder of the charts of models with measurements.
CHARTS = "charts"
SVG_MARK = "<!-- Written by `exporter report` from the results -->\n"
JSON_MARK = '{\n  "schemaVersion": 1,\n  "label": '


def render_exports(
    manifest: Manifest, run: RunRecord, history: AcceptanceHistory | None = None
) -> dict[str, str | bytes]:
    """Return every file by its name relative to the reports folder.

    Raises:
        ExporterError: ENVIRONMENT, if a plugin cannot be loaded or returns an invalid file name.
    """
    # Commands without a report do not need these modules.
    from exporter.report.exports import (
        create_model_badge,
        create_project_badge,
        draw_badge,
        draw_matrix,
        format_badge_json,
        format_csv,
        format_junit,
        render_plugin_files,
    )

    by_model = collect_cells(manifest, run)
    cells = [cell for each in by_model.values() for cell in each]
    badges = {f"{BADGES}/{id}": create_model_badge(id, each) for id, each in by_model.items()}
    badges[BADGE] = create_project_badge(cells)
    return {
        JUNIT: format_junit(manifest, by_model, history or AcceptanceHistory()),
        CSV: format_csv(cells),
        MATRIX: draw_matrix(by_model, SVG_MARK),
        **{f"{name}.svg": draw_badge(badge, SVG_MARK) for name, badge in badges.items()},
        **{f"{name}.json": format_badge_json(badge) for name, badge in badges.items()},
        **render_plugin_files(manifest, run),
    }


_SINGLE_FILES = frozenset({OVERVIEW, INDEX, JUNIT, CSV, MATRIX, f"{BADGE}.svg", f"{BADGE}.json"})
#: Files of each model: the folder, the suffix, and the start of files that belong to the report.
_MODEL_FILES = (
    (PAGES, ".md", MARK),
    (BADGES, ".svg", SVG_MARK),
    (BADGES, ".json", JSON_MARK),
    (CHARTS, ".svg", SVG_MARK),
)
#: Merges keep both sides of these files without a conflict, because the next report replaces them.
#: The baseline is no such file: a person decides about its conflicts.
_ATTRIBUTES = ".gitattributes"
_ATTRIBUTES_MARK = "# Written by `exporter report`: it replaces these files after a merge.\n"
_MERGED = (OVERVIEW, INDEX, JUNIT, CSV, "*.svg", f"{BADGE}.json", f"{BADGES}/**", f"{PAGES}/**")
_NAMES = (
    *(rf"{folder}/[a-z0-9][a-z0-9_.-]*{re.escape(suffix)}" for folder, suffix, _ in _MODEL_FILES),
    f"{PLUGINS}/{NAME_PATTERN}/{NAME_PATTERN}",
)


def write_reports(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write every file, and delete the files of removed models and plugins.

    Raises:
        ExporterError: ENVIRONMENT, if a file cannot be written or deleted, or if a folder inside
            the reports folder is a link.
        ValueError: If a name does not belong to a report.
    """
    unknown = [
        name
        for name in files
        if name not in _SINGLE_FILES and not any(re.fullmatch(each, name) for each in _NAMES)
    ]
    if unknown:
        raise ValueError(f"files {unknown}: unknown names of a report")
    plugins = sorted(path for path in (folder / PLUGINS).glob("*") if path.is_dir())
    folders = (folder, folder / PAGES, folder / BADGES, folder / CHARTS, folder / PLUGINS, *plugins)
    for path in folders[1:]:
        if path.is_symlink():
            message = f"{path}: is a symlink; replace it by a folder, or remove it"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
    for name, content in sorted(files.items()):
        data = content.encode() if isinstance(content, str) else content
        if not _has_content(folder / name, data):
            write_bytes(folder / name, data)
    _write_attributes(folder / _ATTRIBUTES)
    for path in folders:
        remove_unfinished_files(path)
    for inner, suffix, mark in _MODEL_FILES:
        for path in sorted((folder / inner).glob(f"*{suffix}")):
            if f"{inner}/{path.name}" not in files and _starts_with(path, mark.encode()):
                _delete(path)
    for path in (path for plugin in plugins for path in sorted(plugin.iterdir())):
        if path.relative_to(folder).as_posix() not in files and path.is_file():
            _delete(path)


def _write_attributes(path: Path) -> None:
    """Write the attributes for git, unless the project has a file of its own."""
    content = _ATTRIBUTES_MARK + "".join(f"{name} merge=union\n" for name in _MERGED)
    is_ours = not os.path.lexists(path) or _starts_with(path, _ATTRIBUTES_MARK.encode())
    if is_ours and not _has_content(path, content.encode()):
        write_bytes(path, content.encode())


def _has_content(path: Path, content: bytes) -> bool:
    try:
        state = path.lstat()
        is_file = S_ISREG(state.st_mode)  # a symlink is no page
        return is_file and state.st_size == len(content) and path.read_bytes() == content
    except OSError:
        return False


def _starts_with(path: Path, mark: bytes) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(mark)) == mark
    except OSError:
        return False


def _delete(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        message = f"{path}: cannot be deleted: {error.strerror}; check its permissions"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error
