"""`exporter list`: what the manifests declare."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import click

from exporter.cli.options.selection import root_option, selection_options
from exporter.cli.output.call_table import HEADER, call_rows
from exporter.cli.output.terminal import align_columns, print_line
from exporter.core.text_format import pluralize
from exporter.manifest import load_project
from exporter.planning.plan import PlannedCell, make_plan
from exporter.planning.selection import Selection
from exporter.report import fold_opsets


@click.command("list")
@selection_options
@click.option(
    "--inputs", "shows_inputs", is_flag=True, help="Show the call of each model, input by input."
)
@root_option
def command(selection: Selection, root: Path, *, shows_inputs: bool) -> int:
    """Show the models, their opsets, devices and exporters."""
    manifest = load_project(root)
    plan = make_plan(manifest, selection)
    if shows_inputs:
        for model in dict.fromkeys(planned.cell.model for planned in plan.selected):
            print_line(model)
            for line in align_columns([HEADER, *call_rows(manifest.find_model(model))]):
                print_line(f"  {line}")
        return 0
    rows = [("MODEL", "OPSETS", "DEVICES", "EXPORTER", "TAGS")]
    for model, group in groupby(plan.selected, key=lambda planned: planned.cell.model):
        cells = list(group)
        rows.append(
            (
                model,
                _opsets(cells),
                " ".join(dict.fromkeys(planned.cell.device for planned in cells)),
                ", ".join(
                    f"{name} {_opsets([c for c in cells if c.route.exporter == name])}"
                    for name in dict.fromkeys(planned.route.exporter for planned in cells)
                ),
                " ".join(manifest.find_model(model).tags),
            )
        )
    for line in align_columns(rows):
        print_line(line)
    print_line(f"{pluralize(len(rows) - 1, 'model')}, {pluralize(len(plan.selected), 'cell')}")
    return 0


def _opsets(cells: list[PlannedCell]) -> str:
    return fold_opsets(planned.cell.opset for planned in cells)
