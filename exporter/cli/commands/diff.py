"""`exporter diff A B`: two sets of results, of two toolchains or two weeks, by the gate's rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from exporter.cli.output.findings import show_findings
from exporter.cli.output.terminal import (print_error, print_line)
from exporter.core.text_format import pluralize
from exporter.core.errors import ExitCode, ExporterError
from exporter.gate import differences
from exporter.records.baseline import Baseline, make_baseline, read_baseline
from exporter.records.record import Record, read_run

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    baseline: Baseline
    records: Mapping[str, Record] = field(default_factory=dict)
    """Empty for a baseline, which holds no messages."""


@click.command()
@click.argument("before", type=_FILE)
@click.argument("after", type=_FILE)
def command(before: Path, after: Path) -> int:
    """Compare two results or baselines.

    Each is a results.json or a baseline.json; the exit code is 1 where they differ.
    """
    old, new = _side(before), _side(after)
    for name, versions in _tools(old.baseline, new.baseline).items():
        print_line(f"{name}: {versions}")
    for path, side in ((before, old), (after, new)):
        if not side.baseline.has_figures:
            print_error(f"warning: {path} has no figures, so no drift is found")
    findings = differences(old.baseline, new.baseline, new.records)
    if not findings:
        print_line(f"{pluralize(len(new.baseline.cells), 'cell')}, no difference", color="green")
        return ExitCode.OK
    show_findings(findings)
    print_line(pluralize(len(findings), "difference"))
    return ExitCode.RED


def _side(path: Path) -> _Side:
    """Reads either kind of file, told apart by what it holds."""
    try:
        table = json.loads(path.read_bytes())
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror}"
        raise ExporterError(ExitCode.UNREADABLE, message) from error
    except (ValueError, RecursionError) as error:
        message = f"{path}: is no JSON, and so neither results nor a baseline"
        raise ExporterError(ExitCode.UNREADABLE, message) from error
    if isinstance(table, dict) and "records" in table:
        run = read_run(path)
        return _Side(baseline=make_baseline(run), records=run.by_cell())
    return _Side(baseline=read_baseline(path))


def _tools(before: Baseline, after: Baseline) -> dict[str, str]:
    """Tools of other versions, and of which only one side knows."""
    names = sorted(before.tools.keys() | after.tools.keys())
    pairs = {name: (before.tools.get(name, "?"), after.tools.get(name, "?")) for name in names}
    return {name: f"{old} -> {new}" for name, (old, new) in pairs.items() if old != new}
