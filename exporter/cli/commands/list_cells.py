"""`exporter list`: the models of the manifests."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import click

from exporter.cli.options.selection import root_option, selection_options
from exporter.cli.output.tables import HEADER, build_call_rows, open_project
from exporter.cli.output.terminal import print_line, print_table
from exporter.core.errors import ExitCode
from exporter.core.text import pluralize
from exporter.manifest.syntax.opsets import format_opsets
from exporter.planning.plan import PlannedCell, make_plan
from exporter.planning.selection import Selection


@click.command("list")
@selection_options
@click.option(
    "--inputs", "shows_inputs", is_flag=True, help="Show the call of each model, input by input."
)
@root_option
def list_cells(selection: Selection, root: Path, *, shows_inputs: bool) -> int:
    """Show the models, their opsets, devices and exporters."""
    manifest = open_project(root)
    plan = make_plan(manifest, selection)
    if shows_inputs:
        for model in dict.fromkeys(planned.cell.model for planned in plan.selected):
            print_line(model)
            print_table([HEADER, *build_call_rows(manifest.find_model(model))], indent="  ")
        return ExitCode.OK
    models = len({planned.cell.model for planned in plan.selected})
    print_line(f"{pluralize(models, 'model')}, {pluralize(len(plan.selected), 'cell')}")
    rows = [("MODEL", "OPSETS", "DEVICES", "EXPORTER", "TAGS")]
    for model, group in groupby(plan.selected, key=lambda planned: planned.cell.model):
        cells = list(group)
        exporters = dict.fromkeys(planned.route.exporter for planned in cells)
        rows.append(
            (
                model,
                _format_cell_opsets(cells),
                " ".join(dict.fromkeys(planned.cell.device for planned in cells)),
                ", ".join(
                    f"{name} {_format_cell_opsets([c for c in cells if c.route.exporter == name])}"
                    for name in exporters
                ),
                " ".join(manifest.find_model(model).tags),
            )
        )
    print_table(rows)
    return ExitCode.OK


def _format_cell_opsets(cells: list[PlannedCell]) -> str:
    return format_opsets(planned.cell.opset for planned in cells)
