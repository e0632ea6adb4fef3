"""`exporter report`: write the reports from the results."""

from __future__ import annotations

import os
from pathlib import Path

import click

from exporter.api.gate_run import read_results
from exporter.cli.options import root_option
from exporter.cli.output.tables import open_project, print_result_notes
from exporter.cli.output.terminal import print_error, print_line
from exporter.core.errors import ExitCode
from exporter.core.text import pluralize
from exporter.report.report_pages import write_reports, write_site


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
