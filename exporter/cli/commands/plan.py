"""`exporter plan`: which cells would run, and why."""

from __future__ import annotations

from pathlib import Path

import click

from exporter.build import (
    BuildOptions,
)
from exporter.cli.options.selection import (
    no_store_option,
    root_option,
    selection_options,
)
from exporter.cli.options.store import open_store
from exporter.cli.output.plan_table import show_plan
from exporter.cli.workflows.plan import decisions_for
from exporter.manifest import load_project
from exporter.planning.plan import make_plan
from exporter.planning.selection import Selection


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
    store = None if no_store else open_store(manifest.project)
    wish = BuildOptions(force=force, thorough=thorough, store=store)
    show_plan(plan, decisions_for(manifest, plan, wish))
    return 0
