"""The printed result of an export."""

from __future__ import annotations

import time
from dataclasses import replace

from exporter.cli.output.tables import make_summary, print_file_problems
from exporter.cli.output.terminal import print_line, print_summary
from exporter.core.errors import ExportSummary
from exporter.core.text import join_names, pluralize
from exporter.processes.worker_variables import describe_untested_torch
from exporter.program import ExportResult
from exporter.records.record import KNOWN_EXAMPLE, UNPROVED_PREFIX


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
        summary = replace(summary, lines=(*others, *((line, None) for line in lines), counts))
    print_summary(summary, time.monotonic() - started)
    return summary


def describe_tables(result: ExportResult) -> str:
    if result.has_tables:
        return f"tables: {result.manifest.project.reports}/COMPATIBILITY.md"
    cells = pluralize(len(result.results.missing), "cell")
    has = "has" if len(result.results.missing) == 1 else "have"
    return f"tables: not written, because {cells} {has} no current result; run `exporter export`"
