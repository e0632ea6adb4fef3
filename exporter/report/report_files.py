"""The files of a report: JUnit, CSV, SVG, badges and those of plugins; all of them on disk.

A plugin in another distribution adds files to the report; docs/extending.md has an example. Equal
inputs must give equal files: `exporter check` and the no-op check do not call its function if the
manifest, the results and the code of its top-level package are unchanged. The files of removed
plugins are deleted. Spreadsheets evaluate a field as a formula if it begins with one of a few
characters, quoted or not. Such a field gets a leading apostrophe, as OWASP recommends.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Literal
from unicodedata import east_asian_width
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from exporter.core.device_name import DeviceName
from exporter.core.errors import ExitCode, ExporterError, Problem
from exporter.core.files import (
    CELL_LIMIT,
    PROJECT_LIMIT,
    TEXT_LIMIT,
    open_regular_file,
    read_regular_file,
    remove_unfinished_files,
    write_bytes,
)
from exporter.core.git import Commit, Git
from exporter.core.text import join_lines, pluralize, remove_controls, truncate
from exporter.manifest import Manifest, ModelSpec, Project
from exporter.manifest.syntax.releases import find_first_release, format_release
from exporter.manifest.syntax.values import format_opsets
from exporter.planning.plan import list_all_cells
from exporter.records.record import CellId, Record, RunRecord, Status
from exporter.report.browser import INDEX, build_index_data, render_index
from exporter.report.formats import LEGEND, clean_detail, clean_message
from exporter.report.pages.model_pages import PAGES
from exporter.report.pages.page_files import MARK, OVERVIEW
from exporter.report.pages.templates import render_html
from exporter.report.report_paths import ReportPaths
from exporter.report.rows.cells import (
    AcceptanceHistory,
    Cell,
    collect_cells,
    format_export_command,
    format_head,
    list_initial_models,
)
from exporter.report.rows.failures import (
    find_model_lines,
    format_repro_command,
    summarize_failure,
)
from exporter.report.rows.matrix import count_parameters

_COLUMNS = (
    "model",
    "opset",
    "device",
    "status",
    "stage",
    "check",
    "exporter",
    "capture",
    "bytes",
    "nodes",
    "parameters",
    "ir_version",
    "first_onnxruntime",
    "message",
)
#: ASCII characters, and their full-width forms, which some spreadsheets accept too.
_FORMULA = tuple("=+-@\t\r|\N{FULLWIDTH EQUALS SIGN}\uff0b\uff0d\uff20")


def format_csv(cells: Iterable[Cell]) -> str:
    """Return the file, with the names of the columns in the first line."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for cell in cells:
        fields = _list_fields(cell)
        writer.writerow(escape_formula(each) if isinstance(each, str) else each for each in fields)
    return buffer.getvalue()


def escape_formula(text: str) -> str:
    """Return the text on one line, in a form that spreadsheets do not evaluate."""
    line = join_lines(text)
    return f"'{line}" if line.startswith(_FORMULA) else line


def _list_fields(cell: Cell) -> tuple[str | int, ...]:
    record = cell.record
    route = record.route if record else None
    file: tuple[str | int, ...] = ("", "", "", "", "")
    if record and (artifact := record.artifact):
        release = find_first_release(artifact.opset_imports.get("", 0), artifact.ir_version)
        file = (
            artifact.bytes,
            artifact.nodes,
            artifact.parameters,
            artifact.ir_version,
            format_release(release) if release else "",
        )
    return (
        cell.id.model,
        cell.id.opset,
        cell.id.device,
        record.status if record else cell.mark.word,
        (record and record.stage) or "",
        (record and record.check) or "",
        route.exporter if route else "",
        route.capture if route else "",
        *file,
        "" if cell.is_pass else cell.expected_reason or cell.reason,
    )


_CaseResult = Literal["", "failure", "error", "skipped"]

_RESULTS: dict[Status, _CaseResult] = {
    Status.PASS: "",
    Status.FAIL: "failure",
    Status.INCONCLUSIVE: "failure",
    Status.XPASS: "failure",
    Status.ERROR: "error",
    Status.CRASH: "error",
    Status.TIMEOUT: "error",
    Status.KILLED: "error",
    Status.XFAIL: "skipped",
    Status.SKIP: "skipped",
    Status.UNAVAILABLE: "skipped",
}


def format_junit(
    manifest: Manifest, by_model: Mapping[str, Sequence[Cell]], history: AcceptanceHistory
) -> str:
    cells = [cell for each in by_model.values() for cell in each]
    counts = _count_results(cells, errors=len(manifest.problems))
    tree = Element("testsuites", {"name": "exporter", **counts})
    if manifest.problems:
        # An error for each problem of a manifest file, because its cells are unknown.
        attributes = {"name": "manifests", **_count_results((), errors=len(manifest.problems))}
        suite = _add_element(tree, "testsuite", attributes)
        for problem in manifest.problems:
            attributes = {"classname": "manifests", "name": str(problem.location or "manifests")}
            case = _add_element(suite, "testcase", attributes)
            details = {"type": "error at source", "message": problem.message}
            _add_element(case, "error", details, str(problem))
    for spec in manifest.models:
        attributes = {"name": spec.id, **_count_results(by_model[spec.id])}
        suite = _add_element(tree, "testsuite", attributes)
        for cell in by_model[spec.id]:
            attributes = {"classname": spec.id, "name": str(cell.id), "file": spec.manifest}
            if cell.is_red:
                attributes["line"] = str(spec.line)
            case = _add_element(suite, "testcase", attributes)
            if result := _get_result(cell):
                message = cell.expected_reason or cell.reason
                attributes = {"type": cell.outcome, "message": message}
                hints = _list_hints(spec, cell, manifest.project, history)
                _add_element(case, result, attributes, _format_details(cell, hints))
    indent(tree)
    return f"{tostring(tree, encoding='unicode')}\n"


def _add_element(parent: Element, tag: str, attributes: dict[str, str], text: str = "") -> Element:
    """Append an element with text from models, tools and manifests."""
    cleaned = {name: remove_controls(value) for name, value in attributes.items()}
    child = SubElement(parent, tag, cleaned)
    child.text = remove_controls(text) or None
    return child


def _get_result(cell: Cell) -> _CaseResult:
    return _RESULTS[cell.record.status] if cell.record else "skipped"


def _count_results(cells: Sequence[Cell], *, errors: int = 0) -> dict[str, str]:
    results = [_get_result(cell) for cell in cells]
    return {
        "tests": str(len(results) + errors),
        "failures": str(results.count("failure")),
        "errors": str(results.count("error") + errors),
        "skipped": str(results.count("skipped")),
    }


def _list_hints(
    spec: ModelSpec, cell: Cell, project: Project, history: AcceptanceHistory
) -> tuple[str, ...]:
    """Return the locations, the acceptance and the commands of a red cell, one per line."""
    if cell.record is None or not cell.is_red:
        return ()
    hints = {
        "code": cell.record.failure_code,
        "promised at": str(spec.location),
        "in the model": ", ".join(find_model_lines(cell.record)),
        "accepted before": history.describe(cell),
        "run again": format_export_command(str(cell.id), project.command),
        "reproduce": format_repro_command(cell.record, project),
    }
    return tuple(f"{name}: {value}" for name, value in hints.items() if value)


def _format_details(cell: Cell, hints: Sequence[str]) -> str:
    """Return all facts about a failed case, because a CI system may show nothing else."""
    record = cell.record
    if record is None or record.status in (Status.SKIP, Status.UNAVAILABLE):
        return ""
    checks = (
        f"{result.check}: {result.status}: {clean_message(result.message)}"
        for result in record.checks
        if result.status is not Status.PASS
    )
    summary = clean_message(summarize_failure(record))
    parts = (cell.reason, *checks, summary, *hints, clean_detail(record.detail))
    return "\n".join(dict.fromkeys(part for part in parts if part))


#: Color names of shields.io, and the fills of our own picture; white text is readable on each.
_FILLS = {
    "brightgreen": "#2a7d3c",
    "yellowgreen": "#6b7a00",
    "red": "#c0392b",
    "lightgrey": "#5f6b7a",
}
#: Characters of a badge, and of a name in the table.
_LONGEST, _LONGEST_NAME = 100, 40
#: Pixels of a badge: a letter at font size 11, a wide letter, the padding on each side.
_LETTER, _WIDE, _PADDING = 6.5, 12.0, 6
#: Pixels of the table: a row, the head, the gap between devices; the table has at most 400.
_ROW, _HEAD, _GAP = 15, 40, 14
#: Rows, and pixels of all opsets together.
_MOST_ROWS, _OPSETS_WIDTH = 22, 620

#: `label`, `message` and `color` of a badge.
Badge = dict[str, str]


def create_project_badge(cells: Sequence[Cell]) -> Badge:
    """Return the badge of the project: a model is proved if a cell passes and no cell is red."""
    models = {cell.id.model for cell in cells}
    red = {cell.id.model for cell in cells if cell.is_red}
    proved = {cell.id.model for cell in cells if cell.is_pass} - red
    message = f"{pluralize(len(proved), 'model')} proved"
    if red:
        message = f"{len(red)} of {pluralize(len(models), 'model')} red"
    elif not_run := sum(cell.record is None for cell in cells):
        message += f", {pluralize(not_run, 'cell')} not run"
    passing = [cell for cell in cells if cell.is_pass or cell.is_red or cell.record is None]
    return _create_badge("ONNX exports", passing, message)


def create_model_badge(model_id: str, cells: Sequence[Cell]) -> Badge:
    """Return the badge of a model, with the opsets at which all devices pass."""
    cells = [cell for cell in cells if not cell.is_beyond_runtime]
    failing = {cell.id.opset for cell in cells if not cell.is_pass}
    opsets = {cell.id.opset for cell in cells} - failing
    noun = "opset" if len(opsets) == 1 else "opsets"
    message = f"{noun} {format_opsets(opsets)}" if opsets else "nothing proved"
    if red := sum(cell.is_red for cell in cells):
        message = f"{red} of {len(cells)} red"
    elif not_run := sum(cell.record is None for cell in cells):
        message = f"{not_run} of {len(cells)} not run"
    if list_initial_models(cell.record for cell in cells):
        message += ", initial weights"
    return _create_badge(model_id, cells, message)


def _create_badge(label: str, cells: Sequence[Cell], message: str) -> Badge:
    passing = sum(cell.is_pass for cell in cells)
    color = "lightgrey"
    if any(cell.is_red for cell in cells):
        color = "red"
    elif passing and all(cell.record for cell in cells):
        color = "brightgreen" if passing == len(cells) else "yellowgreen"
    label, message = (truncate(join_lines(text), _LONGEST) for text in (label, message))
    return {"label": label, "message": message, "color": color}


def format_badge_json(badge: Badge) -> str:
    """Return the JSON for shields.io: https://shields.io/badges/endpoint-badge."""
    return json.dumps({"schemaVersion": 1, **badge}, indent=2) + "\n"


def draw_badge(badge: Badge, comment: str) -> str:
    """Return the badge as SVG without external resources, after a comment."""
    left, right = (
        round(sum(_WIDE if east_asian_width(each) in "WF" else _LETTER for each in text))
        + 2 * _PADDING
        for text in (badge["label"], badge["message"])
    )
    values = {"label": badge["label"], "message": badge["message"], "fill": _FILLS[badge["color"]]}
    return comment + render_html("badge.svg", None, left=left, right=right, **values)


def draw_matrix(by_model: Mapping[str, Sequence[Cell]], comment: str) -> str:
    """Return the picture of the largest models, after a comment."""
    cells = [cell for each in by_model.values() for cell in each]
    models = sorted(by_model, key=lambda model_id: -count_parameters(by_model[model_id]))
    shown = models if len(models) <= _MOST_ROWS else models[: _MOST_ROWS - 1]
    names = [truncate(join_lines(model_id), _LONGEST_NAME) for model_id in shown]
    if more := len(models) - len(shown):
        names.append(f"and {more} more")
    left = round(max((len(name) for name in names), default=0) * _LETTER + 2 * _GAP)
    texts: list[tuple[str, int, int, str]] = [
        (name, _GAP, _HEAD + _ROW * row + 11, "") for row, name in enumerate(names)
    ]
    boxes: list[tuple[int, int, int, int, str, str]] = []
    grids = {
        device_name: sorted({cell.id.opset for cell in cells if cell.id.device == device_name})
        for device_name in dict.fromkeys(cell.id.device for cell in cells)
    }
    step = max(3, min(22, _OPSETS_WIDTH // max(1, sum(map(len, grids.values())))))
    for device_name, opsets in grids.items():
        width = max(step * len(opsets), round(min(len(device_name), 12) * _LETTER), 5 * _GAP // 2)
        texts.append(
            (truncate(join_lines(device_name), max(3, int(width / _LETTER))), left, 16, "")
        )
        ends = f"{opsets[0]}" if len(opsets) == 1 else f"{opsets[0]}..{opsets[-1]}"
        texts.append((ends, left, 31, "soft"))
        for row, model_id in enumerate(shown):
            marks = {c.id.opset: c.mark for c in by_model[model_id] if c.id.device == device_name}
            slots = ((marks.get(opset), column) for column, opset in enumerate(opsets))
            for mark, group in groupby(slots, key=lambda slot: slot[0]):
                columns = [column for _, column in group]
                size = step * len(columns) - 1
                letter = mark.letter if mark and size >= 8 else ""
                x, y = left + step * columns[0], _HEAD + _ROW * row
                if mark:
                    boxes.append((x, y, size, _ROW - 2, mark.fill, letter))
        left += width + _GAP
    x, y = _GAP, _HEAD + _ROW * len(names) + 8
    for mark in LEGEND:
        if any(cell.mark is mark for cell in cells):
            boxes.append((x, y, _ROW, _ROW - 2, mark.fill, mark.letter))
            texts.append((mark.word, x + _ROW + 5, y + 11, ""))
            x += round(_ROW + len(mark.word) * _LETTER) + 2 * _GAP
    return comment + render_html(
        "matrix.svg",
        None,
        title=format_head(cells),
        width=max(left, x),
        height=y + _ROW + 6,
        texts=texts,
        boxes=boxes,
    )


GROUP = "exporter.reports"
#: The folder of all plugins in the reports folder.
PLUGINS = "plugins"
#: A plugin or file name that is safe in a path on every system.
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.-]*"

RenderFunction = Callable[[Manifest, RunRecord], Mapping[str, object]]


def render_plugin_files(manifest: Manifest, run: RunRecord) -> dict[str, str | bytes]:
    """Return the files of all installed plugins, by name relative to the reports folder.

    Raises:
        ExporterError: ENVIRONMENT, if a plugin cannot be loaded or returns an invalid file name.
    """
    files: dict[str, str | bytes] = {}
    for plugin in _list_plugins():
        try:
            render: RenderFunction = plugin.load()
        except (ImportError, AttributeError) as error:
            raise _report_problem(plugin, f"cannot be loaded: {error}") from error
        for name, content in render(manifest, run).items():
            if not re.fullmatch(NAME_PATTERN, name):
                raise _report_problem(plugin, f"invalid file name '{name}'; use a plain name")
            if not isinstance(content, str | bytes):
                kind = type(content).__name__
                raise _report_problem(plugin, f"'{name}' is {kind}; return str or bytes")
            files[f"{PLUGINS}/{plugin.name}/{name}"] = content
    return files


def describe_plugins() -> str:
    """Return the names and versions of all plugins; pages depend on them."""
    return ";".join(
        f"{plugin.name}={plugin.value} {plugin.dist.version if plugin.dist else ''}"
        for plugin in _list_plugins()
    )


def list_plugin_folders() -> list[Path]:
    """Return the folders with the code of all plugins, without importing them."""
    folders: list[Path] = []
    for plugin in _list_plugins():
        spec = find_spec(plugin.module.partition(".")[0])
        if spec and spec.submodule_search_locations:
            folders += [Path(folder) for folder in spec.submodule_search_locations]
        elif spec and spec.origin:
            folders.append(Path(spec.origin))
    return folders


def _list_plugins() -> list[EntryPoint]:
    """Return all plugins by name.

    Raises:
        ExporterError: ENVIRONMENT, if a name is invalid or used twice.
    """
    plugins = sorted(entry_points(group=GROUP), key=lambda plugin: plugin.name)
    for index, plugin in enumerate(plugins):
        if not re.fullmatch(NAME_PATTERN, plugin.name):
            raise _report_problem(plugin, "invalid name; use letters, digits and `_.-`")
        if index and plugin.name == plugins[index - 1].name:
            raise _report_problem(plugin, "two distributions use this name; remove one")
    return plugins


def _report_problem(plugin: EntryPoint, problem: str) -> ExporterError:
    source = f" of {plugin.dist.name}" if plugin.dist else ""
    return ExporterError(ExitCode.ENVIRONMENT, f"report plugin '{plugin.name}'{source}: {problem}")


JUNIT = "junit.xml"
CSV = "results.csv"
MATRIX = "matrix.svg"
BADGE = "badge"
#: The folder of the models' badges. Only files that begin with a mark belong to the report.
BADGES = "badges"
SVG_MARK = "<!-- Written by `exporter report` from the results -->\n"
JSON_MARK = '{\n  "schemaVersion": 1,\n  "label": '


def render_exports(
    manifest: Manifest, run: RunRecord, history: AcceptanceHistory | None = None
) -> dict[str, str | bytes]:
    """Return every file by its name relative to the reports folder.

    Raises:
        ExporterError: ENVIRONMENT, if a plugin cannot be loaded or returns an invalid file name.
    """
    history = history or AcceptanceHistory()
    by_model = collect_cells(manifest, run)
    cells = [cell for each in by_model.values() for cell in each]
    data = build_index_data(manifest, run, by_model, history)
    templates = Path(manifest.project.root) / manifest.project.templates
    badges = {f"{BADGES}/{id}": create_model_badge(id, each) for id, each in by_model.items()}
    badges[BADGE] = create_project_badge(cells)
    return {
        INDEX: render_index(*data, templates, history.commit),
        JUNIT: format_junit(manifest, by_model, history),
        CSV: format_csv(cells),
        MATRIX: draw_matrix(by_model, SVG_MARK),
        **{f"{name}.svg": draw_badge(badge, SVG_MARK) for name, badge in badges.items()},
        **{f"{name}.json": format_badge_json(badge) for name, badge in badges.items()},
        **render_plugin_files(manifest, run),
    }


#: Files of each model: the folder, the suffix, and the start of files that belong to the report.
_MODEL_FILES = (
    (PAGES, ".md", MARK),
    (BADGES, ".svg", SVG_MARK),
    (BADGES, ".json", JSON_MARK),
)
#: Merges keep both sides of these files without a conflict, because the next report replaces them,
#: and a pull request on GitHub folds them.
#: The baseline is no such file: a person decides about its conflicts.
_ATTRIBUTES = ".gitattributes"
_ATTRIBUTES_MARK = "# Written by `exporter report`: it replaces these files after a merge.\n"
_MERGED = (OVERVIEW, INDEX, JUNIT, CSV, "*.svg", f"{BADGE}.json", f"{BADGES}/**", f"{PAGES}/**")


#: In the first bytes of each file of a report, but for those of plugins.
_SIGNS = (
    b"Written by `exporter report`",
    JSON_MARK.encode(),
    b'<testsuites name="exporter"',
    b"model,opset,device,status,stage,",
    b":root { color-scheme: light dark; --text: #1f2328;",  # a page of `--site`
)
_SIGN_RANGE = 1 << 12


def require_own_files(folder: Path, names: Iterable[str]) -> None:
    """Raise an error if a file that would be replaced is not of a report.

    Raises:
        ExporterError: ENVIRONMENT, with a problem for each such file.
    """
    is_report = any(_has_sign(folder / f"{OVERVIEW[:-3]}{suffix}") for suffix in (".md", ".html"))
    problems = []
    for name in sorted(names):
        path = folder / name
        if path.is_symlink() or not path.is_file() or not path.stat().st_size:
            continue
        # A template of the project may render the index without a sign.
        is_known = name.startswith(f"{PLUGINS}/") or (name == INDEX and is_report)
        if not is_known and not _has_sign(path):
            fix = "move it away, or name another folder"
            problems.append(Problem(message=f"{path}: was not written by `exporter report`; {fix}"))
    if problems:
        raise ExporterError(ExitCode.ENVIRONMENT, problems)


def _has_sign(path: Path) -> bool:
    try:
        with open_regular_file(path) as file:
            head = file.read(_SIGN_RANGE)
    except OSError:
        return False
    return any(sign in head for sign in _SIGNS)


#: In the folder of a plugin: the names of the files that the last report wrote there.
_WRITTEN = ".written"


def _list_written(plugin: Path) -> frozenset[str]:
    try:
        return frozenset(read_regular_file(plugin / _WRITTEN, CELL_LIMIT).decode().splitlines())
    except (OSError, ValueError):
        return frozenset()


def write_reports(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write every file, and delete the files of removed models and plugins.

    Raises:
        ExporterError: ENVIRONMENT, if a file cannot be written or deleted, if a folder inside
            the reports folder is a link, or if a file was not written by a report.
    """
    plugins = sorted(path for path in (folder / PLUGINS).glob("*") if path.is_dir())
    folders = (folder, folder / PAGES, folder / BADGES, folder / PLUGINS, *plugins)
    for path in folders[1:]:
        if path.is_symlink():
            message = f"{path}: is a symlink; replace it by a folder, or remove it"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
    require_own_files(folder, files)
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
    _clean_plugin_folders(folder, plugins, files)


def _clean_plugin_folders(folder: Path, existing: Iterable[Path], files: Iterable[str]) -> None:
    """Delete the files that an earlier report wrote for a plugin, and list the present ones."""
    written = [folder / name for name in files if name.startswith(f"{PLUGINS}/")]
    for plugin in sorted({*existing, *(path.parent for path in written)}):
        names = sorted(path.name for path in written if path.parent == plugin)
        for path in (plugin / name for name in sorted(_list_written(plugin))):
            if path.name not in names and path.parent == plugin and path.is_file():
                _delete(path)
        content = "".join(f"{name}\n" for name in names).encode()
        if names and not _has_content(plugin / _WRITTEN, content):
            write_bytes(plugin / _WRITTEN, content)
        elif not names and (plugin / _WRITTEN).is_file():
            _delete(plugin / _WRITTEN)


def _write_attributes(path: Path) -> None:
    """Write the attributes for git, unless the project has a file of its own."""
    content = _ATTRIBUTES_MARK + "".join(
        f"{name} merge=union linguist-generated\n" for name in _MERGED
    )
    is_ours = not os.path.lexists(path) or _starts_with(path, _ATTRIBUTES_MARK.encode())
    if is_ours and not _has_content(path, content.encode()):
        write_bytes(path, content.encode())


def _has_content(path: Path, content: bytes) -> bool:
    try:
        return read_regular_file(path, len(content)) == content  # a symlink is no page
    except OSError:
        return False


def _starts_with(path: Path, mark: bytes) -> bool:
    try:
        with open_regular_file(path) as file:
            return file.read(len(mark)) == mark
    except OSError:
        return False


def _delete(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        message = f"{path}: cannot be deleted: {error.strerror}; check its permissions"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error


def find_merge_error(manifest: Manifest) -> str:
    """Return why files of another machine contradict each other, as after a merge of git, or ""."""
    reports = ReportPaths(manifest.project).reports
    try:
        table = read_regular_file(reports / CSV, PROJECT_LIMIT).decode()
        rows = list(csv.DictReader(table.splitlines()))
        badge = str(json.loads(read_regular_file(reports / f"{BADGE}.json", TEXT_LIMIT))["message"])
        cells = [_read_cell(row) for row in rows]
    except (OSError, ValueError, KeyError, RecursionError, TypeError):
        return ""  # there are none, or another program replaced them
    counted = create_project_badge(cells)["message"]
    if counted != badge:
        return f"{BADGE}.json has '{badge}', and {CSV} '{counted}'"
    is_same = {cell.id for cell in cells} == set(list_all_cells(manifest))
    return "" if is_same else f"{CSV} has other cells than the manifests"


def describe_uncommitted(manifest: Manifest, run: RunRecord, environment: Mapping[str, str]) -> str:
    """Return why the committed table is old, or "". Messages differ between machines."""
    reports = ReportPaths(manifest.project).reports
    cells = [cell for each in collect_cells(manifest, run).values() for cell in each]
    new = [row[:-1] for row in csv.reader(format_csv(cells).splitlines())]
    for _, files in list_versions(reports, (CSV,), environment, 1):
        lines = files[CSV].decode(errors="replace").splitlines()
        if new != [row[:-1] for row in csv.reader(lines)]:
            return f"{manifest.project.reports}/{CSV} of the last commit has other results"
    return ""


def _read_cell(row: Mapping[str, str]) -> Cell:
    """Return a cell of the table; one that did not run has no record."""
    device_name = DeviceName(row["device"])
    id = CellId(model=row["model"], opset=int(row["opset"]), device=device_name)
    is_known = row["status"] in set(Status)
    return Cell(id=id, record=Record(cell=id, status=Status(row["status"])) if is_known else None)


def list_versions(
    folder: Path, names: Sequence[str], environment: Mapping[str, str], limit: int
) -> list[tuple[Commit, dict[str, bytes]]]:
    """Return the last versions of files and folders with their commits, the oldest first.

    Each version has the contents by their paths from `folder`. There are none if git cannot read
    the history. A shallow clone has only its own commits.
    """
    git = Git(folder, environment)
    versions, contents = [], dict[str, bytes]()
    try:
        arguments = ("log", f"--max-count={limit}", "--format=%H %cs", "--", *names)
        for line in (git.try_run(*arguments) or "").splitlines():
            id, day = line.split()
            listing = git.try_run("ls-tree", "-r", "-z", id, "--", *names) or ""
            files = dict(entry.split("\t")[::-1] for entry in listing.split("\0") if entry)
            for blob in {*files.values()} - contents.keys():
                contents[blob] = (git.try_run("cat-file", *blob.split()[1:]) or "").encode()
            if files:
                version = {name: contents[blob] for name, blob in files.items()}
                versions.append((Commit(id=id[:12], day=day), version))
    except (ExporterError, OSError):
        return []
    return versions[::-1]
