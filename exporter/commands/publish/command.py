"""`exporter publish`: write proved files to self-contained directories."""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path

import click

from exporter.cli.options import root_option, selection_options
from exporter.cli.output.tables import open_project
from exporter.cli.output.terminal import print_error, print_line
from exporter.commands.publish import publisher
from exporter.commands.publish.published_folder import (
    Candidate,
    Omission,
    choose_file,
    list_hints,
    write_catalog,
)
from exporter.commands.publish.publisher import PublishResult, prepare_destination
from exporter.commands.toolchains import select_suffix
from exporter.core.device_name import CURRENT
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text import pluralize
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.decisions import filter_valid_results
from exporter.pipeline.required_packages import require_packages
from exporter.planning import Selection
from exporter.planning.plan import make_plan, pattern_matches
from exporter.processes import make_worker_environment
from exporter.records.record import read_run
from exporter.report.rows.cells import group_by_opset


@click.command()
@selection_options
@click.argument("dest")
@click.option("--include-red", is_flag=True, help="Also publish failing cells, marked as failing.")
@click.option(
    "--initial", "include_initial", is_flag=True, help="Also publish files with initial weights."
)
@root_option
def publish(selection: Selection, root: Path, dest: str, **included: bool) -> int:
    """Write each passing file to a self-contained directory.

    DEST/<model>/<opset>/ is written for each selected file that passes on all selected devices.

    Each directory contains model.onnx, its weights, test data for ONNX's test runners, the
    contract, the proof and SHA256SUMS. DEST/README.md and DEST/index.json list all of them. A
    directory that this command did not write is never changed.
    """
    # The files of toolchains are proved for comparison only.
    manifest = select_suffix(open_project(root), CURRENT)
    cells = make_plan(manifest).cells if not Path(dest).exists() else ()
    if any(pattern_matches(dest, planned.cell) for planned in cells):
        message = (
            f"DEST: '{dest}' matches cells; add the destination, as in "
            f"`exporter publish {dest} dist`, or write `./{dest}` for a directory of that name"
        )
        raise ExporterError(ExitCode.MANIFEST, message)
    plan = make_plan(manifest, selection)
    build = BuildFolder.from_project(manifest.project)
    run = read_run(build.results)
    results = filter_valid_results(run, manifest, plan)
    records, missing = results.run.by_cell(), results.missing
    files = groupby(plan.selected, key=lambda each: (each.cell.model, each.cell.opset))
    choices = [choose_file(list(cells), records, missing, **included) for _, cells in files]
    candidates = [choice for choice in choices if isinstance(choice, Candidate)]
    omissions = [choice for choice in choices if isinstance(choice, Omission)]
    for group in group_by_opset(
        omissions, lambda item: item.cell, lambda item: (item.reason, item.is_refused)
    ):
        text = f"{group.model}/{group.opset_ranges}: not published: {group.first.reason}"
        if group.first.is_refused:
            print_error(text)
        else:
            print_line(text, wraps=True)
    done: list[PublishResult] = []
    if candidates:
        require_packages()
        destination = prepare_destination(Path(dest), build.path)
        environment = make_worker_environment(os.environ)
        for result in publisher.publish(manifest, candidates, destination, run.tools, environment):
            _print_result(result, Path(dest))
            done.append(result)
    published = [result for result in done if not result.problem]
    for hint in list_hints([manifest.find_model(result.candidate.model) for result in published]):
        print_line(hint, wraps=True)
    templates = Path(manifest.project.root).resolve() / manifest.project.templates
    if published and (note := write_catalog(Path(dest).resolve(), templates)):
        print_error(note)
    print_line(f"{pluralize(len(published), 'file')} published in {dest}", wraps=True)
    if len(published) < len(done) or any(item.is_refused for item in omissions):
        return ExitCode.RED
    return ExitCode.OK if published else ExitCode.NOTHING_SELECTED


def _print_result(result: PublishResult, dest: Path) -> None:
    candidate = result.candidate
    name = f"{candidate.model}/{candidate.opset}"
    if result.problem:
        print_error(f"{name}: not published: {result.problem}")
    else:
        print_line(f"{dest / name}", color="green" if not candidate.warning else "red")
        if candidate.warning:
            print_error(f"{name}: published although it is red: {candidate.warning}")
        if weights := candidate.records[0].initial_weights:
            print_line(f"    weights: {weights}, not trained", wraps=True)
        if settings := candidate.records[0].unproved_settings:
            print_line(f"    not proved: {settings}", wraps=True)
    for note in result.notes:
        print_line(f"    {note}", wraps=True)
