"""The printed result of an export."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from exporter.cli.output.tables import make_summary, print_file_problems
from exporter.cli.output.terminal import print_line, print_summary
from exporter.core.errors import ExportSummary
from exporter.core.text import join_names, pluralize
from exporter.manifest.rules.layers import FETCH_GUIDE
from exporter.processes.worker_variables import describe_untested_torch
from exporter.program import ExportResult
from exporter.records.baseline import FOLDER
from exporter.records.record import KNOWN_EXAMPLE, UNPROVED_PREFIX
from exporter.report.rows.failures import split_message


def print_result(
    result: ExportResult,
    started: float,
    *,
    timings: bool,
    quiet: bool,
    has_tables: bool,
    verbose: bool = False,
) -> ExportSummary:
    summary = make_summary(
        result.manifest,
        result.plan,
        result.results.run,
        restored=len(result.results.restored),
        timings=timings,
        grid=not quiet,
        verbose=verbose,
    )
    print_file_problems(result.manifest)
    notes = (note for record in result.results.run.records for note in record.notes)
    silent = (note.removeprefix(UNPROVED_PREFIX) for note in notes if KNOWN_EXAMPLE in note)
    line = describe_untested_torch(dict.fromkeys(text.partition(",")[0] for text in silent))
    if line and not quiet:
        print_line(line)
    if has_tables and not quiet:
        project, by_cell = result.manifest.project, result.results.run.by_cell()
        records = (by_cell.get(planned.cell) for planned in result.plan.selected)
        names = dict.fromkeys(each.artifact.file for each in records if each and each.artifact)
        lines = [f"files: {join_names([f'{project.build}/{each}' for each in names], 2)}"]
        lines = [*(lines if names else ()), describe_tables(result)]
        *others, counts = summary.lines
        every = (*others, *((line, None) for line in lines), counts)
        summary = replace(summary, lines=every, next_step=_find_next_step(result))
    print_summary(summary, time.monotonic() - started)
    return summary


def _find_next_step(result: ExportResult) -> str:
    """Return what a user would do now: repair the first red cell, or accept or compare results."""
    by_cell, project = result.results.run.by_cell(), result.manifest.project
    absent = result.manifest.missing_files
    records = [by_cell.get(planned.cell) for planned in result.plan.selected]
    for record in filter(None, records):
        if record.status.is_red and split_message(record).fixes:
            return f"apply the fix, then `exporter export {record.cell.model}`"
        names = [name for name, models in absent.items() if record.cell.model in models]
        if record.status.is_red and names:
            return f"fetch {names[0]} first: see {FETCH_GUIDE}"
        if record.status.is_red:
            return f"`exporter guide {record.failure_code}` explains the first failure"
    if not all(records):
        return "`exporter export` proves the cells without a result"
    is_accepted = Path(project.root, project.reports, FOLDER).is_dir()
    return "`exporter gate`" if is_accepted else "`exporter baseline` accepts these results"


def describe_tables(result: ExportResult) -> str:
    if result.has_tables:
        return f"tables: {result.manifest.project.reports}/COMPATIBILITY.md"
    cells = pluralize(len(result.results.missing), "cell")
    has = "has" if len(result.results.missing) == 1 else "have"
    return f"tables: not written, because {cells} {has} no current result; run `exporter export`"
