"""`exporter publish`: proved files as folders that stand alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from exporter.build import BuildFolder, filter_valid_results, require_packages
from exporter.cli.options.selection import root_option, selection_options
from exporter.cli.output.terminal import print_error, print_line
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text_format import pluralize
from exporter.manifest import Manifest, load_project
from exporter.planning.plan import make_plan, pattern_matches
from exporter.planning.selection import Selection
from exporter.processes import make_worker_environment
from exporter.records.record import read_run
from exporter.report.rows.opset_groups import group_by_opset
from exporter.tools.publish import (
    PublishOptions,
    PublishResult,
    choose_files,
    prepare_destination,
    publish,
)


@click.command()
@selection_options
@click.argument("dest")
@click.option("--include-red", is_flag=True, help="Publish what is red, too, and say so in it.")
@root_option
def command(selection: Selection, root: Path, dest: str, include_red: bool) -> int:
    """Write files that pass as folders that stand alone.

    DEST/<model>/<opset>/ is written for each selected file that passes on all selected devices.

    Each folder holds model.onnx, its weights, test data for ONNX's test runners, the contract, the
    proof and SHA256SUMS. A folder there that this command did not write is never touched.
    """
    manifest = load_project(root)
    _refuse_forgotten(manifest, dest)
    plan = make_plan(manifest, selection)
    build = BuildFolder.from_project(manifest.project)
    run = read_run(build.results)
    results = filter_valid_results(run, manifest, plan)
    chosen, left_out = choose_files(
        plan.selected, results.run.by_cell(), results.missing, include_red=include_red
    )
    folds = group_by_opset(
        left_out, lambda item: item.cell, lambda item: (item.reason, item.is_refused)
    )
    for alike in folds:
        tell = print_error if alike.first.is_refused else print_line
        tell(f"{alike.model}/{alike.opset_ranges}: not published: {alike.first.reason}")
    done: Sequence[PublishResult] = ()
    if chosen:
        require_packages()
        shipment = PublishOptions(
            manifest=manifest,
            destination=prepare_destination(Path(dest), build.path),
            tools=run.tools,
            environment=make_worker_environment(os.environ),
        )
        done = publish(shipment, chosen, lambda shipped: _tell(shipped, Path(dest)))
    published = [shipped for shipped in done if not shipped.problem]
    print_line(f"{pluralize(len(published), 'file')} published in {dest}")
    if len(published) < len(done) or any(item.is_refused for item in left_out):
        return ExitCode.RED
    return ExitCode.OK if published else ExitCode.NOTHING_SELECTED


def _refuse_forgotten(manifest: Manifest, dest: str) -> None:
    """`exporter publish alexnet` names a model where the folder belongs."""
    cells = make_plan(manifest).cells if not Path(dest).exists() else ()
    if any(pattern_matches(dest, planned.cell) for planned in cells):
        message = (
            f"'{dest}' selects cells: say where to publish after it, as in "
            f"`exporter publish {dest} dist`, or `./{dest}` for a folder of that name"
        )
        raise ExporterError(ExitCode.MANIFEST, message)


def _tell(shipped: PublishResult, dest: Path) -> None:
    candidate = shipped.candidate
    name = f"{candidate.model}/{candidate.opset}"
    if shipped.problem:
        print_error(f"{name}: not published: {shipped.problem}")
    else:
        print_line(f"{dest / name}", color="green" if not candidate.warning else "red")
        if candidate.warning:
            print_error(f"{name}: published although it is red: {candidate.warning}")
    for note in shipped.notes:
        print_line(f"    {note}")
