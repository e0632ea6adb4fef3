"""`exporter plan`: the cells that an export would run, with the reasons."""

from __future__ import annotations

import os
from pathlib import Path

import click

from exporter.cli.options.selection import no_store_option, root_option, selection_options
from exporter.cli.output.tables import open_project, show_plan
from exporter.core.errors import ExitCode
from exporter.planning.selection import Selection
from exporter.usecases import build_plan


@click.command()
@selection_options
@root_option
@click.option("--force", is_flag=True, help="As `export --force` would.")
@click.option("--thorough", is_flag=True, help="As `export --thorough` would.")
@no_store_option
def plan(selection: Selection, root: Path, force: bool, thorough: bool, no_store: bool) -> int:
    """Show the cells that an export would run, with the reasons."""
    options = build_plan.ExportOptions(
        selection=selection, force=force, thorough=thorough, use_store=not no_store
    )
    show_plan(build_plan.plan(open_project(root), options, os.environ))
    return ExitCode.OK
