"""`exporter ops`: the operators of models that an exporter lacks."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import TypeVar

import click

from exporter.cli.options import complete, root_option
from exporter.cli.output.tables import open_project
from exporter.cli.output.terminal import print_line, print_table
from exporter.core.errors import ExitCode
from exporter.manifest.syntax.values import format_opsets
from exporter.pipeline.environments import require_packages
from exporter.planning import Selection
from exporter.planning.plan import make_plan
from exporter.plugins.ops.operators import OperatorGaps, SurveyResponse, run_survey
from exporter.processes import make_worker_environment
from exporter.records.record import Route

_Key = TypeVar("_Key", bound=Hashable)
_NAMES = {"torchscript": "TorchScript", "dynamo": "dynamo"}
_UNUSED = " (not used for these files)"


@click.command()
@click.argument("cells", shell_complete=complete("cells"), nargs=-1, required=True)
@root_option
def ops(cells: tuple[str, ...], root: Path) -> int:
    """List the operators of models that an exporter lacks.

    Each missing operator of the models of CELLS is listed with its opsets and the model's lines.
    Nothing is exported.
    """
    manifest = open_project(root)
    require_packages()
    routes: dict[str, dict[int, Route]] = {}
    for planned in make_plan(manifest, Selection(patterns=cells)).to_run:
        routes.setdefault(planned.cell.model, {})[planned.cell.opset] = planned.route
    is_red = False
    for model, model_routes in routes.items():
        spec = manifest.find_model(model)
        root_folder = Path(manifest.project.root).resolve()
        environment = make_worker_environment(os.environ)
        response = run_survey(spec, root_folder, model_routes, environment)
        is_red |= show_missing_operators(model, model_routes, response)
    return ExitCode.RED if is_red else ExitCode.OK


def show_missing_operators(model: str, routes: dict[int, Route], response: SurveyResponse) -> bool:
    """Print the operators of a model that the exporters lack.

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
