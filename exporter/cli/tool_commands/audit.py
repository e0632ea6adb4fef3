"""`exporter audit`: measure how many changes of a file the checks detect."""

from __future__ import annotations

import os
from pathlib import Path

import click

from exporter.cli.options.selection import root_option
from exporter.cli.output.manifest_problems import open_project
from exporter.cli.output.terminal import is_terminal, print_line, print_table
from exporter.core.atomic_files import write_text
from exporter.core.errors import ExitCode
from exporter.core.text_format import pluralize
from exporter.manifest.syntax.device_names import CURRENT_TOOLCHAIN
from exporter.pipeline import require_packages
from exporter.planning.plan import make_plan
from exporter.planning.selection import Selection
from exporter.processes import make_worker_environment
from exporter.records.audit import THRESHOLD, Audit
from exporter.report.rows.audits import locate_audit
from exporter.tools.audit.client import AuditOptions, run_audit

#: The number of mutants for each progress line on a terminal.
_PROGRESS_STEP = 25


@click.command()
@click.argument("cells", nargs=-1, required=True)
@click.option(
    "--mutants",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Number of mutants of each file.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the mutants.")
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    default=THRESHOLD,
    show_default=True,
    help="Share of mutants that the checks must catch.",
)
@root_option
def audit(cells: tuple[str, ...], mutants: int, seed: int, threshold: float, root: Path) -> int:
    """Count the small changes of files that the checks catch.

    The result is written to the reports folder; `exporter report` shows it on the model's page.
    """
    # The checks run with the current packages.
    manifest = open_project(root).select_toolchain(CURRENT_TOOLCHAIN)
    plan = make_plan(manifest, Selection(patterns=cells))
    require_packages()

    def print_progress(done: int) -> None:
        if done % _PROGRESS_STEP == 0 and is_terminal():
            print_line(f"[{done}/{mutants}]")

    worst = 1.0
    for planned in plan.to_run:
        result = run_audit(
            manifest,
            planned.cell,
            AuditOptions(mutants=mutants, seed=seed),
            make_worker_environment(os.environ),
            print_progress,
        )
        reports = Path(manifest.project.root) / manifest.project.reports
        write_text(locate_audit(reports, planned.cell), result.to_json())
        show_audit(result, threshold)
        worst = min(worst, result.share)
    return ExitCode.OK if worst >= threshold else ExitCode.RED


def show_audit(audit: Audit, threshold: float) -> None:
    """Print the counts by kind, the checks that caught mutants, and the survivors."""
    head = ("KIND", "CAUGHT", "SURVIVED", "WITHIN LIMITS", "SAME OUTPUTS")
    rows = (
        (
            tally.kind,
            str(tally.caught),
            str(tally.survived),
            str(tally.within),
            str(tally.equivalent + tally.same),
        )
        for tally in audit.tallies
    )
    print_table([head, *rows])
    print_line(
        "caught by " + ", ".join(f"{check} {count}" for check, count in audit.caught_by.items())
    )
    for survivor in audit.survivors:
        print_line(f"survived: {survivor.kind}: {survivor.change}: {survivor.reason}", color="red")
    print_line(
        f"{audit.cell}: {pluralize(audit.mutants, 'mutant')}; caught {audit.share:.1%} of those "
        f"that break the contract, {audit.share_of_moved:.1%} of those that change an output",
        color="green" if audit.share >= threshold else "red",
    )
