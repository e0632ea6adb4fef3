"""`exporter show`: print the graph of a file."""

from __future__ import annotations

import os
from pathlib import Path

import click

from exporter.cli.options import complete, root_option, select_one_cell
from exporter.cli.output.tables import open_project
from exporter.cli.output.terminal import print_line
from exporter.core.errors import ExitCode, ExporterError
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.environments import require_packages
from exporter.processes import make_worker_environment
from exporter.processes.child_call import ChildFailure, call_in_child

_FUNCTION = "exporter.plugins.show.child:format_graph"
#: Seconds; files of several gigabytes take some minutes.
_TIMEOUT = 600.0


@click.command()
@click.argument("cell", shell_complete=complete("cells"))
@click.option("--scopes", is_flag=True, help="Print the module of each node instead.")
@root_option
def show(cell: str, scopes: bool, root: Path) -> int:
    """Print the graph of CELL's file in ONNX's text form.

    CELL is a full id (model/opset/device) or a pattern that matches one cell. Large weights are
    omitted.
    """
    manifest = open_project(root)
    id = select_one_cell(manifest, cell).cell
    folder = BuildFolder.from_project(manifest.project).cell_folder(id)
    path = folder.model(id.opset)
    if not path.is_file():
        record = folder.read_records().get(id)
        reason = f"{record.outcome}: {record.message}" if record else "no result yet"
        message = f"{id}: has no file: {reason}; run `exporter export` to create it"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    require_packages(("onnx", "numpy"))
    arguments = {"path": path.resolve(), "scopes": scopes}
    environment = make_worker_environment(os.environ)
    try:
        graph = call_in_child(_FUNCTION, arguments, str, environment, seconds=_TIMEOUT)
    except ChildFailure as failure:
        message = f"{path.name}: cannot be shown: its process {failure}"
        raise ExporterError(ExitCode.BUG, message) from failure
    print_line(graph.rstrip("\n"))
    return ExitCode.OK
