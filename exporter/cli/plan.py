"""`exporter plan`: which cells would run, and why."""

from __future__ import annotations

from pathlib import Path

import click

from exporter.cli.options import root_option, selection_options, today
from exporter.cli.terminal import aligned, plural, say
from exporter.manifest import Manifest, load_project
from exporter.plan import Plan, Selection, make_plan
from exporter.run import BuildFolder, Judge, collect


@click.command()
@selection_options
@root_option
def command(selection: Selection, root: Path) -> int:
    """Show the cells that an export would run, and why."""
    manifest = load_project(root)
    show_plan(manifest, make_plan(manifest, selection))
    return 0


def show_plan(manifest: Manifest, plan: Plan) -> None:
    """One line per selected cell: whether it runs, its exporter, and why."""
    results = collect(plan, BuildFolder.of(manifest.project), Judge(manifest, today()))
    known = results.run.by_cell()
    rows = []
    for planned in plan.selected:
        name = str(planned.cell)
        if planned.skip:
            rows.append((name, "skip", "", planned.skip))
            continue
        route = planned.route
        why = (
            results.missing.get(name) or f"it is selected; its last result is {known[name].status}"
        )
        rows.append((name, "run", f"{route.exporter} {route.capture}", why))
    for line in aligned(rows):
        say(line)
    skipped = len(plan.selected) - len(plan.to_run)
    say(f"{plural(len(plan.to_run), 'cell')} to run, {skipped} to skip")
