"""`exporter plan`: which cells would run, and why."""

from __future__ import annotations

from pathlib import Path

import click

from exporter.cli.options import no_store_option, root_option, selection_options, today
from exporter.cli.store import store_of
from exporter.cli.terminal import aligned, plural, say
from exporter.manifest import Manifest, load_project
from exporter.plan import Plan, make_plan
from exporter.run import BuildFolder, Decisions, Judge, Stored, Wish, decide
from exporter.selection import Selection


@click.command()
@selection_options
@root_option
@click.option("--force", is_flag=True, help="As `export --force` would.")
@click.option("--thorough", is_flag=True, help="As `export --thorough` would.")
@no_store_option
def command(selection: Selection, root: Path, force: bool, thorough: bool, no_store: bool) -> int:
    """Show the cells that an export would run, and why."""
    manifest = load_project(root)
    plan = make_plan(manifest, selection)
    store = None if no_store else store_of(manifest.project)
    wish = Wish(force=force, thorough=thorough, store=store)
    show_plan(plan, decisions_for(manifest, plan, wish))
    return 0


def decisions_for(manifest: Manifest, plan: Plan, wish: Wish) -> Decisions:
    """What an export would do now."""
    stored = Stored(BuildFolder.of(manifest.project))
    return decide(plan, stored, Judge(manifest, today()), wish)


def show_plan(plan: Plan, decisions: Decisions) -> None:
    """One line per selected cell: whether it runs, its exporter, and why."""
    rows = []
    for planned in plan.selected:
        name = str(planned.cell)
        route = f"{planned.route.exporter} {planned.route.capture}"
        if planned.skip:
            rows.append((name, "skip", "", planned.skip))
        elif decisions.runs(planned):
            rows.append((name, "run", route, decisions.reasons[name]))
        elif hit := decisions.hits.get(name):
            rows.append((name, "take", route, f"taken from the store: {hit.why}"))
        else:
            rows.append((name, "keep", route, "nothing that it depends on changed"))
    for line in aligned(rows):
        say(line)
    taken = len(decisions.hits)
    kept = len(plan.to_run) - len(decisions.to_run) - taken
    skipped = len(plan.selected) - len(plan.to_run)
    counts = f"{plural(len(decisions.to_run), 'cell')} to run, {kept} to keep, {skipped} to skip"
    say(f"{counts}, {taken} to take from the store" if taken else counts)
