"""`exporter report`: write the reports from the results; `exporter merge`: join the shards."""

from __future__ import annotations

import os
from pathlib import Path

import click

from exporter.api.gate_run import read_results
from exporter.api.report_pages import write_reports, write_site
from exporter.cli.options import root_option
from exporter.cli.output.tables import make_summary, open_project, print_result_notes
from exporter.cli.output.terminal import print_error, print_line, print_summary
from exporter.core.errors import ExitCode, ExporterError, Problem
from exporter.core.text import pluralize
from exporter.planning.plan import make_plan
from exporter.plugins.shard_merge import merge_shards
from exporter.report.rows.cells import group_by_opset


@click.command()
@root_option
@click.option(
    "--commits",
    is_flag=True,
    help="Add the commit and trends over commits from git, for pages that are not committed.",
)
@click.option(
    "--site",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a static site with the commit into this folder instead, for example for Pages.",
)
def report(root: Path, *, commits: bool, site: Path | None) -> int:
    """Write the tables and the pages of the models."""
    manifest = open_project(root)
    current = read_results(manifest)
    print_result_notes(current)
    run = current.results.run
    if site:
        write_site(manifest, run, site, os.environ)
        print_line(f"{pluralize(len(run.records), 'cell')}: {site}/index.html")
        return ExitCode.OK
    for warning in write_reports(manifest, run, os.environ if commits else None):
        print_error(warning)
    cells = pluralize(len(run.records), "cell")
    print_line(f"{cells}: {manifest.project.reports}/COMPATIBILITY.md")
    return ExitCode.OK


@click.command()
@click.argument(
    "folders",
    metavar="FOLDER...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@root_option
def merge(folders: tuple[Path, ...], root: Path) -> int:
    """Join the build folders of all shards and write the tables.

    Each FOLDER is the result of `export --shard`. All shards must be present, with all cells of
    the manifests; if one is missing, the others are joined and the exit code is 1. Red cells do not
    change the exit code, because the gate decides about them.
    """
    manifest = open_project(root)
    plan = make_plan(manifest)
    merged = merge_shards(manifest, plan, folders)
    results = merged.results
    for warning in write_reports(manifest, results.run):
        print_error(warning)
    print_summary(make_summary(manifest, plan, results.run))
    tables = f"{manifest.project.reports}/COMPATIBILITY.md"
    print_line(f"merged {pluralize(merged.count, 'shard')}; tables: {tables}")
    problems = list(merged.problems)
    # A problem at its entry for each group of cells without a result.
    entries = {spec.id: spec.location for spec in manifest.models}
    missing = results.missing.items()
    for group in group_by_opset(missing, lambda item: item[0], lambda item: item[1]):
        cell, reason = group.first
        message = f"{group.label}: no result: {reason}"
        problems.append(Problem(message=message, location=entries.get(cell.model)))
    if problems:
        raise ExporterError(ExitCode.RED, problems)
    return ExitCode.OK
