"""`exporter diff A B`: compare the results of two toolchains or dates by the gate's rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from exporter.cli.output.findings import show_findings
from exporter.cli.output.terminal import print_error, print_line
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text_format import pluralize
from exporter.gate import compare_baselines
from exporter.records.baseline import Baseline, make_baseline, read_baseline
from exporter.records.record import CellId, Record, read_run

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ComparedFile:
    baseline: Baseline
    records: Mapping[CellId, Record] = field(default_factory=dict)
    """Empty for a baseline, which contains no messages."""


@click.command()
@click.argument("before", type=_FILE)
@click.argument("after", type=_FILE)
def diff(before: Path, after: Path) -> int:
    """Compare two results or baselines.

    Each file is a results.json or a baseline.json. The exit code is 1 if they differ.
    """
    old, new = _read_file(before), _read_file(after)
    old_tools, new_tools = old.baseline.tools, new.baseline.tools
    for name in sorted(old_tools.keys() | new_tools.keys()):
        versions = (old_tools.get(name, "?"), new_tools.get(name, "?"))
        if versions[0] != versions[1]:
            print_line(f"{name}: {versions[0]} -> {versions[1]}")
    for path, file in ((before, old), (after, new)):
        if not file.baseline.has_figures:
            print_error(f"warning: {path}: has no figures; drift is not compared")
    findings = compare_baselines(old.baseline, new.baseline, new.records)
    if not findings:
        print_line(f"{pluralize(len(new.baseline.cells), 'cell')}, no difference", color="green")
        return ExitCode.OK
    show_findings(findings)
    print_line(pluralize(len(findings), "difference"))
    return ExitCode.RED


def _read_file(path: Path) -> _ComparedFile:
    """Read a results file or a baseline, depending on its keys."""
    try:
        table = json.loads(path.read_bytes())
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror}"
        raise ExporterError(ExitCode.UNREADABLE, message) from error
    except (ValueError, RecursionError) as error:
        message = f"{path}: is not JSON; expected a results.json or a baseline.json"
        raise ExporterError(ExitCode.UNREADABLE, message) from error
    if isinstance(table, dict) and "records" in table:
        run = read_run(path)
        return _ComparedFile(baseline=make_baseline(run), records=run.by_cell())
    return _ComparedFile(baseline=read_baseline(path))
