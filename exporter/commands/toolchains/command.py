"""`exporter rehearse`: export with other packages and compare with the results in place."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import click

from exporter.cli.options import cells_option, root_option
from exporter.cli.output.tables import open_project, require_readable_files, show_findings
from exporter.cli.output.terminal import print_error, print_line, print_table
from exporter.commands.toolchains.rehearsal_run import RehearsalOptions, bisect_releases
from exporter.commands.toolchains.rehearsal_run import rehearse as run_rehearsal
from exporter.commands.toolchains.upgrade_comparison import (
    UpgradeComparison,
    format_rehearsal_json,
    group_operator_changes,
    group_outcomes,
    render_rehearsal,
    summarize_outcomes,
)
from exporter.core.errors import ExitCode
from exporter.core.text import pluralize
from exporter.manifest import Manifest
from exporter.manifest.syntax.values import ExporterName
from exporter.planning import Selection
from exporter.report.rows.gate_rows import build_finding_rows


@click.command()
@click.argument("requirements", nargs=-1)
@cells_option
@root_option
@click.option("--exporter", type=click.Choice(["dynamo"]), help="Export cells without TorchScript.")
@click.option("--bisect", is_flag=True, help="Find the release that breaks or repairs a cell.")
@click.option("--jobs", type=click.IntRange(min=1), help="Number of workers.")
@click.option("--thorough", is_flag=True, help="Try more sizes and values; takes longer.")
@click.option("--markdown", is_flag=True, help="Print markdown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def rehearse(
    selection: Selection,
    requirements: tuple[str, ...],
    root: Path,
    exporter: ExporterName | None,
    jobs: int | None,
    **flags: bool,
) -> int:
    """Export with other packages, and show the regressions.

    REQUIREMENTS are packages as pip reads them, such as 'torch==2.14.*' or 'onnxscript>=0.8'. They
    are installed in an environment of their own, which has all current packages, too. The files
    are written to a build folder of their own and compared with the results in place. Nothing of
    the project changes. The exit code is 1 if a cell is worse.

    With --exporter dynamo, only the cells of TorchScript are exported, by dynamo and the version
    converter below its first opset. Then REQUIREMENTS may be empty.

    With --bisect, the releases that meet the one requirement, such as 'onnxscript>=0.6', are
    tried by halves. The first release with another outcome is printed for each cell.
    """
    if not requirements and not exporter:
        raise click.UsageError("Missing argument 'REQUIREMENTS...', or --exporter dynamo.")
    manifest = open_project(root)
    require_readable_files(manifest)
    options = RehearsalOptions(
        requirements=requirements,
        selection=selection,
        exporter=exporter,
        jobs=jobs,
        thorough=flags["thorough"],
    )
    if flags["bisect"]:
        _bisect(manifest, options, as_json=flags["as_json"])
        return ExitCode.OK
    result = run_rehearsal(manifest, options, os.environ, print_error)
    if result.without_result:
        cells = pluralize(result.without_result, "cell")
        print_error(f"warning: {cells} without a current result; run `exporter export` first")
    comparison = result.comparison
    if flags["as_json"]:
        print_line(format_rehearsal_json(requirements, comparison, exporter).rstrip())
    elif flags["markdown"]:
        templates = Path(manifest.project.root) / manifest.project.templates
        command = manifest.project.command
        print_line(
            render_rehearsal(requirements, comparison, templates, command, exporter).rstrip()
        )
    else:
        _show(comparison, exporter)
    return ExitCode.RED if comparison.regressions else ExitCode.OK


def _bisect(manifest: Manifest, options: RehearsalOptions, *, as_json: bool) -> None:
    """Print the change of each cell, or JSON."""
    if len(options.requirements) != 1:
        raise click.UsageError("--bisect: give one requirement, such as 'onnxscript>=0.6'.")
    changes = bisect_releases(manifest, options, os.environ, print_error)
    if as_json:
        rows = [asdict(change) | {"cell": str(change.cell)} for change in changes]
        print_line(json.dumps(rows, indent=1))
        return
    for change in changes:
        steps = f"{change.last} {change.before} -> {change.first} {change.after}"
        color = "green" if change.is_repaired else "red"
        print_line(f"{change.cell}: {change.package} {steps}", color=color)
        if change.message:
            print_line(f"    {change.message}", wraps=True)


def _show(comparison: UpgradeComparison, exporter: ExporterName | None) -> None:
    """Print the tools, the findings and the changed files; with an exporter, each cell."""
    for name, (before, after) in comparison.changed_tools.items():
        print_line(f"{name}: {before} -> {after}")
    if exporter:
        groups = group_outcomes(comparison)
        print_table((group.label, group.first.text, group.first.message) for group in groups)
        print_line(summarize_outcomes(comparison, exporter))
        return
    show_findings(rows=build_finding_rows(comparison.findings))
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
