"""`exporter report`: writes the reports from the results."""

from __future__ import annotations

from pathlib import Path

import click

from exporter.cli.options.selection import root_option
from exporter.cli.output.terminal import print_line
from exporter.cli.workflows.report import publish
from exporter.cli.workflows.results import read_results
from exporter.core.errors import ExitCode
from exporter.core.text_format import pluralize
from exporter.manifest import load_project


@click.command()
@root_option
def command(root: Path) -> int:
    """Write the tables and the pages of the models."""
    manifest = load_project(root)
    results = read_results(manifest)
    publish(manifest, results.run)
    print_line(
        f"{pluralize(len(results.run.records), 'cell')}: {manifest.project.reports}/COMPATIBILITY.md"
    )
    return ExitCode.OK
