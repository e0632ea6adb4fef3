"""`exporter rehearse`: export with other packages and compare with the results in place."""

from __future__ import annotations

import os
from pathlib import Path

import click

from exporter.api.rehearsal_run import RehearsalOptions
from exporter.api.rehearsal_run import rehearse as run_rehearsal
from exporter.cli.options import cells_option, root_option
from exporter.cli.output.tables import open_project, require_readable_files, show_findings
from exporter.cli.output.terminal import print_error, print_line, print_table
from exporter.core.errors import ExitCode
from exporter.core.text import pluralize
from exporter.gate import UpgradeComparison
from exporter.planning import Selection
from exporter.report.pages.rehearsal_page import (
    format_rehearsal_json,
    group_operator_changes,
    render_rehearsal,
)


@click.command()
@click.argument("requirements", nargs=-1, required=True)
@cells_option
@root_option
@click.option("--jobs", type=click.IntRange(min=1), help="Number of workers.")
@click.option("--thorough", is_flag=True, help="Try more sizes and values; takes longer.")
@click.option("--markdown", is_flag=True, help="Print markdown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def rehearse(
    selection: Selection,
    requirements: tuple[str, ...],
    root: Path,
    jobs: int | None,
    **flags: bool,
) -> int:
    """Export with other packages, and show the regressions.

    REQUIREMENTS are packages as pip reads them, such as 'torch==2.14.*' or 'onnxscript>=0.8'. They
    are installed in an environment of their own, which has all current packages, too. The files
    are written to a build folder of their own and compared with the results in place. Nothing of
    the project changes. The exit code is 1 if a cell is worse.
    """
    manifest = open_project(root)
    require_readable_files(manifest)
    options = RehearsalOptions(
        requirements=requirements,
        selection=selection,
        jobs=jobs,
        thorough=flags["thorough"],
    )
    result = run_rehearsal(manifest, options, os.environ, print_error)
    if result.without_result:
        cells = pluralize(result.without_result, "cell")
        print_error(f"warning: {cells} without a current result; run `exporter export` first")
    comparison = result.comparison
    if flags["as_json"]:
        print_line(format_rehearsal_json(requirements, comparison).rstrip())
    elif flags["markdown"]:
        templates = Path(manifest.project.root) / manifest.project.templates
        command = manifest.project.command
        print_line(render_rehearsal(requirements, comparison, templates, command).rstrip())
    else:
        _show(comparison)
    return ExitCode.RED if comparison.regressions else ExitCode.OK


def _show(comparison: UpgradeComparison) -> None:
    """Print the tools, the findings and the changed files."""
    for name, (before, after) in comparison.changed_tools.items():
        print_line(f"{name}: {before} -> {after}")
    show_findings(comparison.findings)
    changed = comparison.changed_files
    operators = group_operator_changes(comparison)
    if operators:
        print_line("files with other operators:")
        print_table(((group.label, group.first.change) for group in operators), indent="    ")
    print_line(f"{len(changed)} of {pluralize(comparison.files, 'file')} differ")
    worse = len(comparison.regressions)
    color = "red" if worse else "green"
    cells = pluralize(comparison.cells, "cell")
    print_line(f"{cells} compared, {pluralize(worse, 'regression')}", color=color)
