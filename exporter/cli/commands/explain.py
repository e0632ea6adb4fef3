"""`exporter explain`: every setting of one cell, and the line it comes from."""

from __future__ import annotations

from pathlib import Path

import click

from exporter.cli.options.selection import root_option, select_one_cell
from exporter.cli.output.tables import print_file_problems
from exporter.cli.output.terminal import print_error, print_line, print_table
from exporter.core.errors import ExitCode
from exporter.manifest import explain_cell, load_layers


@click.command()
@click.argument("cell")
@root_option
def explain(cell: str, root: Path) -> int:
    """Show each setting of CELL, and the line it comes from.

    CELL is a full id (model/opset/device) or a pattern that matches one cell.
    """
    loaded = load_layers(root, keep_invalid=True)
    print_file_problems(loaded.manifest)
    planned = select_one_cell(loaded.manifest, cell)
    id, route = planned.cell, planned.route
    print_line(f"{id}: {route.exporter} {route.capture}, because {route.reason}")
    if planned.skip:
        print_line(f"{planned.skip_status}: {planned.skip}")
    spec = loaded.manifest.find_model(id.model)
    for problem in spec.problems:
        print_error(problem)
    settings = explain_cell(loaded.layers[id.model], spec, id.opset, id.device)
    rows = ((setting.key, setting.origin, setting.value) for setting in settings)
    print_table([("KEY", "FROM", "VALUE"), *rows])
    return ExitCode.OK
