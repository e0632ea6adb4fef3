"""`exporter repro`: write a folder that reproduces one cell without this tool."""

from __future__ import annotations

import os
from pathlib import Path

import click

from exporter.cache.fingerprint import extract_tool_versions
from exporter.cli.options import complete, root_option, select_one_cell, weights_option
from exporter.cli.output.tables import open_project
from exporter.cli.output.terminal import print_line
from exporter.commands.repro.repro import (
    ReproducedCell,
    write_anonymous_reproducer,
    write_reproducer,
)
from exporter.core.errors import ExitCode, ExporterError
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.decisions import filter_valid_results
from exporter.planning.plan import make_plan
from exporter.records.record import read_run


@click.command()
@click.argument("cell", shell_complete=complete("cells"))
@click.argument("dest", required=False, type=click.Path(path_type=Path))
@click.option("--anonymous", is_flag=True, help="Use other weights and inputs; run the script.")
@click.option("--hash-names", is_flag=True, help="With --anonymous: hash names of modules, too.")
@weights_option
@root_option
def repro(
    cell: str,
    dest: Path | None,
    root: Path,
    *,
    anonymous: bool,
    hash_names: bool,
    weights: str | None,
) -> int:
    """Write a script that reproduces the failure of CELL.

    The script needs torch, onnx and onnxruntime, but not this tool.

    CELL is a full id (model/opset/device) or a pattern that matches one cell. The folder is DEST,
    or build/repro/<model>-<opset>-<device>.

    With --anonymous, the weights and inputs are noise with the same statistics, and other files
    than Python code are left out. The script runs once, because the failure may need the original
    numbers. The exit code is 1 if it does not occur any more.
    """
    if hash_names and not anonymous:
        raise click.UsageError("--hash-names needs --anonymous.")
    manifest = open_project(root, initial_weights=weights is not None)
    id = select_one_cell(manifest, cell).cell
    build = BuildFolder.from_project(manifest.project)
    results = filter_valid_results(read_run(build.results), manifest, make_plan(manifest))
    record = results.run.by_cell().get(id)
    if record is None:
        reason = results.missing.get(id, "has no result; run `exporter export` first")
        raise ExporterError(ExitCode.NOTHING_SELECTED, f"{id}: {reason}")
    folder = dest or build.path / "repro" / f"{id.model}-{id.opset}-{id.device}"
    reproduced = ReproducedCell(
        spec=manifest.find_model(id.model).resolve_cell(id.opset, id.device),
        record=record,
        device=manifest.project.find_device(id.device),
        tools=results.run.tools
        | extract_tool_versions(record.fingerprint)
        | record.runtime_packages,
        root=Path(manifest.project.root),
        built=build.cell_folder(id),
    )
    if anonymous:
        occurs = write_anonymous_reproducer(reproduced, folder, os.environ, hashes_names=hash_names)
        verb = "occurs" if occurs else "does not occur"
        print_line(f"{folder}: the failure {verb} with other weights and inputs")
        return ExitCode.OK if occurs or not record.status.is_red else ExitCode.RED
    write_reproducer(reproduced, folder)
    print_line(f"{folder}: run `python repro.py` in this folder")
    return ExitCode.OK
