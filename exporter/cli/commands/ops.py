"""`exporter ops`: what the exporters can convert, of torch as a whole or of one model."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import TypeVar

import click

from exporter.build import require_packages
from exporter.cli.options.selection import root_option
from exporter.cli.output.terminal import align_columns, print_line
from exporter.cli.workflows.results import read_results
from exporter.core.atomic_files import write_text
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text_format import pluralize
from exporter.manifest import Manifest, load_project
from exporter.planning.plan import Plan, make_plan
from exporter.planning.selection import Selection
from exporter.processes import make_worker_environment
from exporter.records.record import Route, RunRecord
from exporter.report.rows.opset_groups import fold_opsets
from exporter.tools.operators.client import build_table, read_stored_table, run_survey
from exporter.tools.operators.operators_page import OPERATORS_FILE, render_operators
from exporter.tools.operators.protocol import OperatorGaps, SurveyRequest, SurveyResponse

_Key = TypeVar("_Key", bound=Hashable)
_NAMES = {"torchscript": "TorchScript", "dynamo": "dynamo"}


@click.command()
@click.argument("cells", nargs=-1)
@root_option
def command(cells: tuple[str, ...], root: Path) -> int:
    """Write the table of operators, or list what CELLS lack.

    Without CELLS: which operators each exporter can convert, at which opsets, and which of the
    models use them, into OPERATORS.md beside the reports. With CELLS: every operator of these
    models that an exporter lacks, opset by opset, with the model's lines; nothing is exported.
    """
    manifest = load_project(root)
    require_packages()
    if not cells:
        return _write_table(manifest)
    plan = make_plan(manifest, Selection(patterns=cells))
    return _list_lacking(manifest, plan)


def _write_table(manifest: Manifest) -> int:
    run = _run(manifest)
    table = read_stored_table(manifest)
    if table is None:
        print_line("asking torch for every operator and opset, which takes some minutes, once")
        table = build_table(manifest, make_worker_environment(os.environ))
    project = manifest.project
    root = Path(project.root)
    text = render_operators(manifest, table, run, root / project.templates)
    path = root / project.reports / OPERATORS_FILE
    write_text(path, text)
    count = len({row.operator for row in table.rows})
    print_line(f"{pluralize(count, 'operator')}: {project.reports}/{OPERATORS_FILE}")
    return ExitCode.OK


def _run(manifest: Manifest) -> RunRecord:
    """The results; without any, no operator is known to be used by a model."""
    try:
        return read_results(manifest).run
    except ExporterError as error:
        if error.exit_code != ExitCode.UNREADABLE:
            raise
        for problem in error.problems:
            print_line(f"no models in the table: {problem}")
        return RunRecord(tools={}, records=())


def _list_lacking(manifest: Manifest, plan: Plan) -> int:
    is_red = False
    for model, routes in _routes(plan).items():
        question = SurveyRequest(
            spec=manifest.find_model(model),
            root=str(Path(manifest.project.root).resolve()),
            routes=routes,
        )
        answer = run_survey(question, make_worker_environment(os.environ))
        is_red |= show_lacking(model, routes, answer)
    return ExitCode.RED if is_red else ExitCode.OK


def _routes(plan: Plan) -> dict[str, dict[int, Route]]:
    """By model and opset: the exporter of the cells that are run."""
    routes: dict[str, dict[int, Route]] = {}
    for planned in plan.to_run:
        routes.setdefault(planned.cell.model, {})[planned.cell.opset] = planned.route
    return routes


def show_lacking(model: str, routes: dict[int, Route], answer: SurveyResponse) -> bool:
    """Prints what a model lacks; whether it does so at an opset that it promises.

    Args:
        model: Its ID.
        routes: By opset, the exporter that the promise is kept by.
        answer: What was found.
    """
    if answer.problem:
        print_line(f"{model}: {answer.problem}", color="red")
        return True
    is_red = False
    for exporter, name in _NAMES.items():
        found = [item for item in answer.gaps if item.exporter == exporter]
        promised = [item for item in found if routes[item.opset].exporter == exporter]
        for items, word in ((promised, ""), ([i for i in found if i not in promised], _ELSE)):
            if items:
                is_red |= _show_group(f"{model}: {name}", items, word) and not word
    return is_red


_ELSE = " (which does not make these files)"


def _show_group(head: str, items: list[OperatorGaps], word: str) -> bool:
    """Prints what an exporter lacks at some opsets; whether it is anything."""
    fine = [item.opset for item in items if not item.missing and not item.problem]
    if fine:
        print_line(
            f"{head} {fold_opsets(fine)}{word}: lacks nothing", color=None if word else "green"
        )
    colour = None if word else "red"
    for problem, opsets in _grouped((item.problem, item.opset) for item in items if item.problem):
        print_line(f"{head} {fold_opsets(opsets)}{word}: {problem}", color=colour)
    missing = _grouped(
        ((lack.operator, f"{lack.count}x", ", ".join(lack.sources)), item.opset)
        for item in items
        for lack in item.missing
    )
    if missing:
        opsets = sorted({opset for _, found in missing for opset in found})
        print_line(f"{head} {fold_opsets(opsets)}{word}: lacks", color=colour)
        rows = [("operator", "uses", "opsets", "at")]
        rows += [(row[0], row[1], fold_opsets(found), row[2]) for row, found in missing]
        for line in align_columns(rows):
            print_line(f"  {line}")
    return len(fine) < len(items)


def _grouped(pairs: Iterable[tuple[_Key, int]]) -> list[tuple[_Key, list[int]]]:
    """Opsets by what is the same at them, in the order of the first."""
    groups: dict[_Key, list[int]] = {}
    for key, opset in pairs:
        groups.setdefault(key, []).append(opset)
    return list(groups.items())
