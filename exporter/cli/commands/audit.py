"""`exporter audit`: how much the checks of a cell can see."""

from __future__ import annotations

import os
from pathlib import Path

import click

from exporter.build import require_packages
from exporter.cli.options.selection import root_option
from exporter.cli.output.terminal import align_columns, is_terminal, print_line
from exporter.core.atomic_files import write_text
from exporter.core.errors import ExitCode
from exporter.core.text_format import pluralize
from exporter.manifest import load_project
from exporter.planning.plan import make_plan
from exporter.planning.selection import Selection
from exporter.processes import make_worker_environment
from exporter.records.audit import THRESHOLD, Audit
from exporter.report.rows.audits import locate_audit
from exporter.tools.audit.client import AuditOptions, run_audit

#: On a terminal, a line for so many mutants.
_EVERY = 25


@click.command()
@click.argument("cells", nargs=-1, required=True)
@click.option(
    "--mutants",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="How many to make of each file.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Another seed, other mutants.")
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    default=THRESHOLD,
    show_default=True,
    help="The share that must be caught.",
)
@root_option
def command(cells: tuple[str, ...], mutants: int, seed: int, threshold: float, root: Path) -> int:
    """Change files in small ways, count what the checks catch.

    Writes what it finds beside the reports; `exporter report` shows it on the model's page.
    """
    manifest = load_project(root)
    plan = make_plan(manifest, Selection(patterns=cells))
    require_packages()
    worst = 1.0
    for planned in plan.to_run:
        audit = run_audit(
            manifest,
            planned.cell,
            AuditOptions(mutants=mutants, seed=seed),
            make_worker_environment(os.environ),
            _Progress(mutants).heard,
        )
        reports = Path(manifest.project.root) / manifest.project.reports
        write_text(locate_audit(reports, planned.cell), audit.to_json())
        show_audit(audit, threshold)
        worst = min(worst, audit.share)
    return ExitCode.OK if worst >= threshold else ExitCode.RED


class _Progress:
    """A line now and then, for who waits at a terminal."""

    def __init__(self, total: int) -> None:
        self._total = total

    def heard(self, done: int) -> None:
        """So many mutants are done."""
        if done % _EVERY == 0 and is_terminal():
            print_line(f"[{done}/{self._total}]")


def show_audit(audit: Audit, threshold: float) -> None:
    """The counts by kind, the checks that caught, and each survivor with its reason."""
    head = ("KIND", "CAUGHT", "SURVIVED", "WITHIN LIMITS", "SAME OUTPUTS")
    rows = [
        (
            tally.kind,
            str(tally.caught),
            str(tally.survived),
            str(tally.within),
            str(tally.equivalent + tally.same),
        )
        for tally in audit.tallies
    ]
    for line in align_columns([head, *rows]):
        print_line(line)
    print_line("caught by " + ", ".join(f"{check} {count}" for check, count in audit.by.items()))
    for survivor in audit.survivors:
        print_line(f"survived: {survivor.kind}: {survivor.change}: {survivor.why}", color="red")
    print_line(
        f"{audit.cell}: {pluralize(audit.mutants, 'mutant')}, {audit.share:.1%} caught of those that "
        f"break the contract, {audit.share_of_moved:.1%} of those that move an output",
        color="green" if audit.share >= threshold else "red",
    )
