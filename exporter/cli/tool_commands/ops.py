"""`exporter ops`: the operators that the exporters can convert, of torch or of one model."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import TypeVar

import click

from exporter.cli.options.selection import root_option
from exporter.cli.output.manifest_problems import open_project
from exporter.cli.output.result_notes import print_result_notes
from exporter.cli.output.terminal import print_line, print_table
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import write_text
from exporter.core.text import pluralize
from exporter.manifest import Manifest
from exporter.manifest.syntax.opsets import format_opsets
from exporter.pipeline import require_packages
from exporter.planning.plan import Selection, make_plan
from exporter.processes import make_worker_environment
from exporter.records.record import Route, RunRecord
from exporter.tools.operator_calls.client import (
    locate_measurement,
    measure_operators,
    read_measurement,
)
from exporter.tools.operator_calls.support_table import CallSupport, OperatorMeasurement
from exporter.tools.operators.client import build_table, read_stored_table, run_survey
from exporter.tools.operators.operators_page import OPERATORS_FILE, render_operators
from exporter.tools.operators.protocol import OperatorGaps, SurveyRequest, SurveyResponse
from exporter.usecases.current_results import read_results

_Key = TypeVar("_Key", bound=Hashable)
_NAMES = {"torchscript": "TorchScript", "dynamo": "dynamo"}
#: Functions between two lines of progress.
_PROGRESS_STEP = 25
_UNUSED = " (not used for these files)"


@click.command()
@click.argument("cells", nargs=-1)
@click.option(
    "--measure",
    is_flag=True,
    help="Export calls of torch's tests and compare the files with PyTorch; takes half an hour. "
    "CELLS are then names of functions, such as `nn.functional.conv2d`.",
)
@root_option
def ops(cells: tuple[str, ...], measure: bool, root: Path) -> int:
    """Write the operator table, or list missing operators.

    Without CELLS, OPERATORS.md in the reports folder lists the operators that each exporter can
    convert, the opsets, and the models that use them. With CELLS, each missing operator of these
    models is listed with its opsets and the model's lines. Nothing is exported.

    With --measure, operators.json in the reports folder gets the measured calls of all operators,
    and OPERATORS.md shows them. With names of functions, their results are printed instead.
    """
    manifest = open_project(root)
    require_packages()
    if measure:
        measurement = measure_operators(
            manifest, cells, make_worker_environment(os.environ), _print_progress
        )
        if cells:
            _print_measurement(measurement)
            return ExitCode.OK
        write_text(locate_measurement(manifest), measurement.to_lines())
        _print_counts(measurement)
    if not cells:
        _write_table(manifest)
        return ExitCode.OK
    routes: dict[str, dict[int, Route]] = {}
    for planned in make_plan(manifest, Selection(patterns=cells)).to_run:
        routes.setdefault(planned.cell.model, {})[planned.cell.opset] = planned.route
    is_red = False
    for model, model_routes in routes.items():
        request = SurveyRequest(
            spec=manifest.find_model(model),
            root=str(Path(manifest.project.root).resolve()),
            routes=model_routes,
        )
        response = run_survey(request, make_worker_environment(os.environ))
        is_red |= show_missing_operators(model, model_routes, response)
    return ExitCode.RED if is_red else ExitCode.OK


def _write_table(manifest: Manifest) -> None:
    run = _read_run(manifest)
    table = read_stored_table(manifest)
    if table is None:
        print_line("building the table of all operators and opsets; this takes minutes, once")
        table = build_table(manifest, make_worker_environment(os.environ))
    project = manifest.project
    root = Path(project.root)
    measurement = read_measurement(manifest)
    text = render_operators(manifest, table, run, measurement, root / project.templates)
    write_text(root / project.reports / OPERATORS_FILE, text)
    count = len({row.operator for row in table.rows})
    print_line(f"{pluralize(count, 'operator')}: {project.reports}/{OPERATORS_FILE}")


def _print_progress(done: int, total: int) -> None:
    if done % _PROGRESS_STEP == 0 or done == total:
        print_line(f"measured {done} of {pluralize(total, 'function')}")


def _print_counts(measurement: OperatorMeasurement) -> None:
    rows = [("", *(str(support) for support in CallSupport))]
    for column in measurement.columns:
        counts = measurement.count(column)
        rows.append((column, *(str(counts.get(support, 0)) for support in CallSupport)))
    print_table(rows)


def _print_measurement(measurement: OperatorMeasurement) -> None:
    for item in measurement.operators:
        print_line(f"{item.operator}: {pluralize(item.calls, 'call')}")
        for column, result in item.columns.items():
            reason = f"; {result.reason}" if result.reason else ""
            print_line(f"  {column}: {result.support}, {result.right} right{reason}")
            if result.call:
                print_line(f"    {result.call}: {result.message}")
    for problem in measurement.problems:
        print_line(problem)


def _read_run(manifest: Manifest) -> RunRecord:
    """Return the results, or no records if there are no readable results."""
    try:
        current = read_results(manifest)
    except ExporterError as error:
        if error.exit_code != ExitCode.UNREADABLE:
            raise
        for problem in error.problems:
            print_line(f"the table contains no models: {problem}")
        return RunRecord(tools={}, records=())
    print_result_notes(current)
    return current.results.run


def show_missing_operators(model: str, routes: dict[int, Route], response: SurveyResponse) -> bool:
    """Print the operators of a model that the exporters lack.

    Args:
        model: The model's id.
        routes: The route of each selected opset.
        response: The missing operators.

    Returns:
        True if an exporter lacks an operator at an opset that it is used for.
    """
    if response.problem:
        print_line(f"{model}: {response.problem}", color="red")
        return True
    is_red = False
    for exporter, name in _NAMES.items():
        items = [item for item in response.gaps if item.exporter == exporter]
        used = [item for item in items if routes[item.opset].exporter == exporter]
        unused = [item for item in items if item not in used]
        is_red |= _show_gaps(f"{model}: {name}", used, "")
        _show_gaps(f"{model}: {name}", unused, _UNUSED)
    return is_red


def _show_gaps(head: str, items: list[OperatorGaps], note: str) -> bool:
    """Print the gaps of one exporter; return True if there are any."""
    complete = [item.opset for item in items if not item.missing and not item.problem]
    if complete:
        line = f"{head} {format_opsets(complete)}{note}: all operators supported"
        print_line(line, color=None if note else "green")
    color = None if note else "red"
    for problem, opsets in _group_opsets(
        (item.problem, item.opset) for item in items if item.problem
    ):
        print_line(f"{head} {format_opsets(opsets)}{note}: {problem}", color=color)
    missing = _group_opsets(
        ((gap.operator, f"{gap.count}x", ", ".join(gap.sources)), item.opset)
        for item in items
        for gap in item.missing
    )
    if missing:
        opsets = [opset for _, group in missing for opset in group]
        print_line(f"{head} {format_opsets(opsets)}{note}: missing operators", color=color)
        rows = ((row[0], row[1], format_opsets(group), row[2]) for row, group in missing)
        print_table([("operator", "uses", "opsets", "at"), *rows], indent="  ")
    return len(complete) < len(items)


def _group_opsets(pairs: Iterable[tuple[_Key, int]]) -> list[tuple[_Key, list[int]]]:
    groups: dict[_Key, list[int]] = {}
    for key, opset in pairs:
        groups.setdefault(key, []).append(opset)
    return list(groups.items())
