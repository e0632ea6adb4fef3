"""`exporter repro`: one cell as a folder that shows its failure without us."""

from __future__ import annotations

from pathlib import Path

import click

from exporter.build import BuildFolder, filter_valid_results
from exporter.cli.options.selection import root_option, select_one_cell
from exporter.cli.output.terminal import print_line
from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Manifest, load_project
from exporter.planning.plan import make_plan
from exporter.records.record import Record, read_run
from exporter.tools.repro import ReproducedCell, write_reproducer


@click.command()
@click.argument("cell")
@click.argument("dest", required=False, type=click.Path(path_type=Path))
@root_option
def command(cell: str, dest: Path | None, root: Path) -> int:
    """Write a script that shows the failure of CELL alone.

    It needs torch, onnx and onnxruntime, and nothing of this tool.

    CELL is a whole id (model/opset/device) or a pattern that means one cell. The folder is DEST,
    or build/repro/<model>-<opset>-<device>.
    """
    manifest = load_project(root)
    record, tools = _record(manifest, cell)
    build = BuildFolder.from_project(manifest.project)
    id = record.cell
    folder = dest or build.path / "repro" / f"{id.model}-{id.opset}-{id.device}"
    write_reproducer(
        ReproducedCell(
            spec=manifest.find_model(id.model).resolve_cell(id.opset, id.device),
            record=record,
            device=manifest.project.find_device(id.device),
            tools=tools,
            root=Path(manifest.project.root),
            built=build.model_folder(id.model),
        ),
        folder,
    )
    print_line(f"{folder}: run `python repro.py` there")
    return ExitCode.OK


def _record(manifest: Manifest, pattern: str) -> tuple[Record, dict[str, str]]:
    name = str(select_one_cell(manifest, pattern).cell)
    run = read_run(BuildFolder.from_project(manifest.project).results)
    results = filter_valid_results(run, manifest, make_plan(manifest))
    known = results.run.by_cell()
    if name not in known:
        message = f"{name}: {results.missing.get(name, 'it has not been exported yet')}"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    return known[name], results.run.tools
