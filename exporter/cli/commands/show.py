"""`exporter show`: the graph of one cell's file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import click

from exporter.build import BuildFolder, require_packages
from exporter.cli.options.selection import root_option, select_one_cell
from exporter.cli.output.terminal import print_line
from exporter.core.atomic_files import write_text
from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import load_project
from exporter.processes import make_worker_environment
from exporter.records.baseline import extract_outcome
from exporter.records.record import Record
from exporter.tools.graph_view.client import render_graph


@click.command()
@click.argument("cell")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page of HTML to this file instead.",
)
@root_option
def command(cell: str, html: Path | None, root: Path) -> int:
    """Show the graph of CELL's file in ONNX's text form.

    CELL is a whole id (model/opset/device) or a pattern that means one cell. Large weights are
    left out.
    """
    manifest = load_project(root)
    id = select_one_cell(manifest, cell).cell
    folder = BuildFolder.from_project(manifest.project).model_folder(id.model)
    path = folder.model(id.opset)
    if not path.is_file():
        message = f"{id}: there is no file of it: {_why_absent(folder.read_records().get(str(id)))}"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    require_packages()
    form: Literal["text", "html"] = "text" if html is None else "html"
    graph = render_graph(path, form, make_worker_environment(os.environ))
    if html is None:
        print_line(graph.rstrip("\n"))
    else:
        write_text(html, graph)
        print_line(f"{html}: open it in a browser")
    return ExitCode.OK


def _why_absent(record: Record | None) -> str:
    if record is None:
        return "run `exporter export` first"
    return f"{extract_outcome(record)}: {record.message}"
