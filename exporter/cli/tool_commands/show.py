"""`exporter show`: print the graph of one cell's file."""

from __future__ import annotations

import os
from pathlib import Path

import click

from exporter.cli.options.selection import root_option, select_one_cell
from exporter.cli.output.manifest_problems import open_project
from exporter.cli.output.terminal import print_line
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import write_text
from exporter.pipeline import BuildFolder, require_packages
from exporter.processes import make_worker_environment
from exporter.records.baseline import extract_outcome
from exporter.tools.graph_view.client import render_graph
from exporter.tools.graph_view.protocol import GraphForm


@click.command()
@click.argument("cell")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write an HTML page to this file instead.",
)
@click.option("--scopes", is_flag=True, help="Print the module of each node instead.")
@root_option
def show(cell: str, html: Path | None, scopes: bool, root: Path) -> int:
    """Print the graph of CELL's file in ONNX's text form.

    CELL is a full id (model/opset/device) or a pattern that matches one cell. Large weights are
    omitted.
    """
    if html and scopes:
        raise click.UsageError("--html and --scopes exclude each other")
    manifest = open_project(root)
    id = select_one_cell(manifest, cell).cell
    folder = BuildFolder.from_project(manifest.project).cell_folder(id)
    path = folder.model(id.opset)
    if not path.is_file():
        record = folder.read_records().get(id)
        reason = f"{extract_outcome(record)}: {record.message}" if record else "no result yet"
        message = f"{id}: has no file: {reason}; run `exporter export` to create it"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    require_packages(("onnx", "numpy"))
    form: GraphForm = "scopes" if scopes else "html" if html else "text"
    graph = render_graph(path, form, make_worker_environment(os.environ))
    if html is None:
        print_line(graph.rstrip("\n"))
    else:
        write_text(html, graph)
        print_line(f"{html}: open it in a browser")
    return ExitCode.OK
