"""`exporter show`: the graph of one cell's file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from exporter.build import BuildFolder, require_packages
from exporter.cli.options.selection import root_option, select_one_cell
from exporter.cli.output.terminal import print_line
from exporter.core.atomic_files import write_text
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.sanitize import redact
from exporter.manifest import load_project
from exporter.processes import make_worker_environment
from exporter.records.baseline import extract_outcome
from exporter.records.record import Record

_COMMAND = (sys.executable, "-P", "-m", "exporter.tools.graph_view.child")
_TAIL = 2000


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
    shown = _shown(path, "text" if html is None else "html")
    if html is None:
        print_line(shown.rstrip("\n"))
    else:
        write_text(html, shown)
        print_line(f"{html}: open it in a browser")
    return ExitCode.OK


def _why_absent(record: Record | None) -> str:
    if record is None:
        return "run `exporter export` first"
    return f"{extract_outcome(record)}: {record.message}"


def _shown(path: Path, form: str) -> str:
    # onnx is for other processes: this one starts in a fraction of the time that its import takes.
    ended = subprocess.run(
        [*_COMMAND, str(path.resolve()), form],
        env=make_worker_environment(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if ended.returncode == 0:
        return ended.stdout
    said = redact(ended.stderr[-_TAIL:], limit=_TAIL).strip()
    code = ExitCode.UNREADABLE if ended.returncode == ExitCode.UNREADABLE else ExitCode.BUG
    raise ExporterError(code, f"{path.name}: cannot be shown: {said}")
