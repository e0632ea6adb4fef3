"""`exporter diff A B`: compare the results of two toolchains or dates by the gate's rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import click

from exporter.cache.fingerprint import extract_tool_versions
from exporter.cli.options import root_option
from exporter.cli.output.tables import open_project, show_findings
from exporter.cli.output.terminal import print_line
from exporter.core.device_name import CURRENT, SEPARATOR
from exporter.core.errors import ExitCode, ExporterError, suggest_nearest
from exporter.core.files import PROJECT_LIMIT, read_regular_file, write_text
from exporter.core.text import pluralize
from exporter.gate.baseline_comparison import compare_baselines
from exporter.records.baseline import (
    AcceptedModel,
    Baseline,
    build_baseline,
    make_baseline,
    read_baseline,
)
from exporter.records.record import CellId, Record, RunRecord, read_run
from exporter.report.pages.index_page import render_comparison
from exporter.report.reports_folder import require_own_files
from exporter.report.rows.gate_rows import build_finding_rows

_FILE = click.Path(exists=True, path_type=Path)


#: The outcomes of a file, and its records; a baseline contains no messages, so it has none.
_Contents = tuple[Baseline, Mapping[CellId, Record]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileArgument:
    path: Path
    suffix: str = ""
    """Only the cells of this toolchain; empty: all cells."""


def _parse_file(context: click.Context, parameter: click.Parameter, value: str) -> _FileArgument:
    path, _, suffix = value.rpartition(SEPARATOR)
    if Path(value).exists() or not path:
        return _FileArgument(path=Path(str(_FILE.convert(value, parameter, context))))
    file = Path(str(_FILE.convert(path, parameter, context)))
    return _FileArgument(path=file, suffix=suffix)


@click.command()
@click.argument("before", callback=_parse_file)
@click.argument("after", callback=_parse_file)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write a page that marks the changed cells of AFTER, a results.json.",
)
@root_option
def diff(before: _FileArgument, after: _FileArgument, html: Path | None, root: Path) -> int:
    """Compare two results or baselines.

    Each file is a results.json, a baseline or a file of one. FILE@NAME selects the cells of a
    toolchain, and the other file those of its own toolchain or of the project's packages. The exit
    code is 1 if they differ.
    """
    if before.suffix or after.suffix:
        before, after = (
            each if each.suffix else replace(each, suffix=CURRENT) for each in (before, after)
        )
    (old, _), (new, records) = _read_file(before), _read_file(after)
    for name in sorted(old.tools.keys() | new.tools.keys()):
        versions = (old.tools.get(name, "?"), new.tools.get(name, "?"))
        if versions[0] != versions[1]:
            print_line(f"{name}: {versions[0]} -> {versions[1]}")
    if html is not None:
        if not records:
            message = f"{after.path}: is a baseline without details; give a results.json for --html"
            raise ExporterError(ExitCode.NOTHING_SELECTED, message)
        manifest = open_project(root)
        run = RunRecord(tools=new.tools, records=tuple(records.values()))
        templates = Path(manifest.project.root) / manifest.project.templates
        require_own_files(html.parent, [html.name])
        # The old outcomes are the accepted ones.
        write_text(html, render_comparison(manifest, run, old, templates))
        print_line(f"{html}: open it in a browser")
    findings = compare_baselines(old, new, records)
    if not findings:
        print_line(f"{pluralize(len(new.cells), 'cell')}, no difference", color="green")
        return ExitCode.OK
    show_findings(rows=build_finding_rows(findings))
    print_line(pluralize(len(findings), "difference"))
    return ExitCode.RED


def _read_file(argument: _FileArgument) -> _Contents:
    """Read a results file or a baseline, depending on its keys, and select the toolchain."""
    path = argument.path
    if path.is_dir() and not any(path.glob("*.json")):
        message = f"{path}: is a folder without a baseline; name a results.json or a baseline"
        raise ExporterError(ExitCode.UNREADABLE, message)
    try:
        table = {} if path.is_dir() else json.loads(read_regular_file(path, PROJECT_LIMIT))
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror}"
        raise ExporterError(ExitCode.UNREADABLE, message) from error
    except (ValueError, RecursionError) as error:
        message = f"{path}: is not JSON; expected a results.json or a baseline"
        raise ExporterError(ExitCode.UNREADABLE, message) from error
    if isinstance(table, dict) and "records" in table:
        run = read_run(path)
        file: _Contents = make_baseline(run), run.by_cell()
    else:
        file = read_baseline(path), {}
    return _select_suffix(*file, argument) if argument.suffix else file


def _select_suffix(
    baseline: Baseline, records: Mapping[CellId, Record], argument: _FileArgument
) -> _Contents:
    """Return the cells of one toolchain as cells of the devices without it.

    Raises:
        ExporterError: NOTHING_SELECTED if the file has no such cell.
    """
    names = {outcome.cell.device.suffix_pattern for outcome in baseline.cells}
    if argument.suffix not in names:
        hint = suggest_nearest(argument.suffix, names) or f"; it has {', '.join(sorted(names))}"
        message = f"{argument.path}: no cell has the toolchain '{argument.suffix}'{hint}"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    outcomes = tuple(
        outcome.model_copy(update={"cell": cell})
        for outcome in baseline.cells
        if (cell := _find_cell(outcome.cell, argument.suffix))
    )
    selected = {
        cell: record.model_copy(update={"cell": cell})
        for record in records.values()
        if (cell := _find_cell(record.cell, argument.suffix))
    }
    versions = (extract_tool_versions(record.fingerprint) for record in selected.values())
    is_current = argument.suffix == CURRENT
    tools = {} if is_current else next((each for each in versions if each), {})
    known = {name: tools.get(name, version) for name, version in baseline.tools.items()}
    return build_baseline(outcomes, lambda _: AcceptedModel(tools=known, cells=())), selected


def _find_cell(cell: CellId, suffix: str) -> CellId | None:
    """Return the cell without its toolchain, or None if it has another one."""
    if cell.device.suffix_pattern != suffix:
        return None
    return cell.model_copy(update={"device": cell.device.base})
