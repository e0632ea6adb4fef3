"""The commands that only read: `check`, `plan`, `list`, `explain`, `schema`, `guide`, `show`."""

from __future__ import annotations

import json
import os
from itertools import groupby
from pathlib import Path
from typing import Any

import click

import exporter
from exporter.api import export_run
from exporter.api.gate_run import find_inconsistencies
from exporter.cli.options import (
    JSON_COMMANDS,
    complete,
    json_option,
    no_store_option,
    result_options,
    root_option,
    select_one_cell,
    selection_options,
)
from exporter.cli.output.tables import (
    HEADER,
    build_call_rows,
    open_project,
    print_file_problems,
    show_plan,
)
from exporter.cli.output.terminal import print_error, print_line, print_table
from exporter.core.errors import ExitCode, ExporterError, suggest_nearest
from exporter.core.known_names import FAILURE_CODES
from exporter.core.text import pluralize
from exporter.manifest import explain_cell, load_layers, load_project
from exporter.manifest.syntax.values import format_opsets
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.environments import require_own_checkout, require_packages
from exporter.planning import Selection
from exporter.planning.plan import PlannedCell, list_all_cells, make_plan
from exporter.processes import make_worker_environment
from exporter.processes.child_call import ChildFailure, call_in_child


@click.command()
@root_option
def check(root: Path) -> int:
    """Check manifests, baseline and tables without an export.

    The baseline and the tables must match the manifests. torch is not needed. The tables are
    compared only if this machine wrote them.
    """
    require_own_checkout(root)
    manifest = load_project(root)
    problems = tuple(find_inconsistencies(manifest))
    for problem in problems:
        print_error(problem)
    cells = pluralize(len(list_all_cells(manifest)), "cell")
    models = pluralize(len(manifest.models), "model")
    print_line(f"{models}, {cells}: {pluralize(len(problems), 'problem')}")
    return ExitCode.RED if problems else ExitCode.OK


@click.command()
@selection_options
@result_options
@root_option
@click.option("--force", is_flag=True, help="As `export --force` would.")
@click.option("--thorough", is_flag=True, help="As `export --thorough` would.")
@no_store_option
@json_option
def plan(
    selection: Selection, root: Path, *, no_store: bool, as_json: bool, **options_of_run: Any
) -> int:
    """Show the cells that an export would run, with the reasons."""
    options = export_run.ExportOptions(
        selection=selection, use_store=not no_store, **options_of_run
    )
    build_plan = export_run.plan(open_project(root), options, os.environ)
    if as_json:
        from exporter.cli.output.documents import make_plan_document, print_document

        print_document(make_plan_document(build_plan))
    else:
        show_plan(build_plan)
    return ExitCode.OK


@click.command("list")
@selection_options
@click.option(
    "--inputs", "shows_inputs", is_flag=True, help="Show the call of each model, input by input."
)
@root_option
@json_option
def list_cells(selection: Selection, root: Path, *, shows_inputs: bool, as_json: bool) -> int:
    """Show the models, their opsets, devices and exporters."""
    manifest = open_project(root)
    plan = make_plan(manifest, selection)
    if as_json:
        from exporter.cli.output.documents import make_list_document, print_document

        print_document(make_list_document(manifest, plan.selected))
        return ExitCode.OK
    if shows_inputs:
        for model in dict.fromkeys(planned.cell.model for planned in plan.selected):
            print_line(model)
            print_table([HEADER, *build_call_rows(manifest.find_model(model))], indent="  ")
        return ExitCode.OK
    models = len({planned.cell.model for planned in plan.selected})
    print_line(f"{pluralize(models, 'model')}, {pluralize(len(plan.selected), 'cell')}")
    rows = [("MODEL", "OPSETS", "DEVICES", "EXPORTER", "TAGS")]
    for model, group in groupby(plan.selected, key=lambda planned: planned.cell.model):
        cells = list(group)
        exporters = dict.fromkeys(planned.route.exporter for planned in cells)
        rows.append(
            (
                model,
                _format_cell_opsets(cells),
                " ".join(dict.fromkeys(planned.cell.device for planned in cells)),
                ", ".join(
                    f"{name} {_format_cell_opsets([c for c in cells if c.route.exporter == name])}"
                    for name in exporters
                ),
                " ".join(manifest.find_model(model).tags),
            )
        )
    print_table(rows)
    return ExitCode.OK


def _format_cell_opsets(cells: list[PlannedCell]) -> str:
    return format_opsets(planned.cell.opset for planned in cells)


@click.command()
@click.argument("cell", shell_complete=complete("cells"))
@root_option
@json_option
def explain(cell: str, root: Path, *, as_json: bool) -> int:
    """Show each setting of CELL, and the line it comes from.

    CELL is a full id (model/opset/device) or a pattern that matches one cell.
    """
    loaded = load_layers(root, keep_invalid=True)
    print_file_problems(loaded.manifest)
    planned = select_one_cell(loaded.manifest, cell)
    id, route = planned.cell, planned.route
    spec = loaded.manifest.find_model(id.model)
    settings = tuple(explain_cell(loaded.layers[id.model], spec, id.opset, id.device))
    if as_json:
        from exporter.cli.output.documents import make_explain_document, print_document

        print_document(make_explain_document(planned, spec.problems, settings))
        return ExitCode.OK
    print_line(f"{id}: {route.exporter} {route.capture}, because {route.reason}")
    if planned.skip:
        print_line(f"{planned.skip_status}: {planned.skip}")
    for problem in spec.problems:
        print_error(problem)
    rows = ((setting.key, setting.origin, setting.value) for setting in settings)
    print_table([("KEY", "FROM", "VALUE"), *rows])
    return ExitCode.OK


@click.command()
@click.argument("document", default="manifest", type=click.Choice(["manifest", *JSON_COMMANDS]))
def schema(document: str) -> int:
    """Print the JSON Schema of manifests, or of `COMMAND --json`.

    Editors complete the keys if a manifest begins with the line `#:schema PATH` of the file that
    contains it.
    """
    from exporter.manifest.schema.json_schema import format_schema

    if document == "manifest":
        click.echo(format_schema(), nl=False)
    else:
        from exporter.cli.output.documents import DOCUMENTS

        root = DOCUMENTS[document].model_json_schema(mode="serialization")
        click.echo(json.dumps(root, indent=2))
    return ExitCode.OK


@click.command()
@click.argument("code", required=False, shell_complete=lambda *_: list(FAILURE_CODES))
def guide(code: str | None) -> int:
    """Print the guide, or the section of a failure code.

    CODE is the code of a red cell, such as E-axis-fixed.
    """
    package = Path(exporter.__path__[0])
    inside = package / "docs"
    folder = inside if inside.is_dir() else package.parent / "docs"
    if code is None:
        click.echo((folder / "start.md").read_text(encoding="utf-8"), nl=False)
        return ExitCode.OK
    if code not in FAILURE_CODES:
        message = f"there is no failure code '{code}'{suggest_nearest(code, FAILURE_CODES)}"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    text = (folder / "failures.md").read_text(encoding="utf-8")
    section = text.partition(f"## {code}\n")[2].partition("\n## ")[0]
    print_line(f"{code}\n{section.rstrip()}")
    return ExitCode.OK


_FUNCTION = "exporter.tools.child.graph_view:format_graph"
#: Seconds; files of several gigabytes take some minutes.
_TIMEOUT = 600.0


@click.command()
@click.argument("cell", shell_complete=complete("cells"))
@click.option("--scopes", is_flag=True, help="Print the module of each node instead.")
@root_option
def show(cell: str, scopes: bool, root: Path) -> int:
    """Print the graph of CELL's file in ONNX's text form.

    CELL is a full id (model/opset/device) or a pattern that matches one cell. Large weights are
    omitted.
    """
    manifest = open_project(root)
    id = select_one_cell(manifest, cell).cell
    folder = BuildFolder.from_project(manifest.project).cell_folder(id)
    path = folder.model(id.opset)
    if not path.is_file():
        record = folder.read_records().get(id)
        reason = f"{record.outcome}: {record.message}" if record else "no result yet"
        message = f"{id}: has no file: {reason}; run `exporter export` to create it"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    require_packages(("onnx", "numpy"))
    arguments = {"path": path.resolve(), "scopes": scopes}
    environment = make_worker_environment(os.environ)
    try:
        graph = call_in_child(_FUNCTION, arguments, str, environment, seconds=_TIMEOUT)
    except ChildFailure as failure:
        message = f"{path.name}: cannot be shown: its process {failure}"
        raise ExporterError(ExitCode.BUG, message) from failure
    print_line(graph.rstrip("\n"))
    return ExitCode.OK
