"""The commands that only read: `check`, `plan`, `list`, `schema`, `guide`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import click
from pydantic import Field

from exporter import program
from exporter.api.gate_run import require_former_ids
from exporter.cli.options import (
    json_option,
    no_store_option,
    result_options,
    root_option,
    selection_options,
)
from exporter.cli.output.tables import (
    INVALID_ENTRY,
    describe_ignored_files,
    open_project,
    show_plan,
)
from exporter.cli.output.terminal import (
    print_document,
    print_line,
    print_problem,
    print_table,
)
from exporter.core.check_table import FAILURE_CODES
from exporter.core.errors import (
    ExitCode,
    ExporterError,
    Problem,
    shorten_problems,
    suggest_nearest,
)
from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.text import find_packaged_folder, pluralize
from exporter.export_options import ExportOptions
from exporter.manifest import Manifest, ModelSpec, find_renames, load_project
from exporter.manifest.syntax.python_source import find_module_file, suggest_module
from exporter.manifest.syntax.values import format_opsets, join_words
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.decisions import drop_changed_files, filter_valid_results
from exporter.pipeline.required_packages import require_own_checkout
from exporter.planning import Selection
from exporter.planning.plan import PlannedCell, list_all_cells, make_plan
from exporter.records.baseline import read_baseline, rename_models
from exporter.records.record import read_run
from exporter.report import reports_folder
from exporter.report.pages.model_page import format_fill
from exporter.report.reports_folder import ReportPaths, find_merge_error
from exporter.report.rows.cells import group_by_opset


@click.command()
@root_option
def check(root: Path) -> int:
    """Check manifests, baseline and tables without an export.

    The baseline and the tables must match the manifests. torch is not needed. The tables are
    compared only if this machine wrote them.
    """
    require_own_checkout(root)
    manifest = load_project(root)
    problems = tuple(_find_inconsistencies(manifest))
    for problem in shorten_problems(problems):
        print_problem(problem)
    for note in _list_repeated_axes(manifest):
        print_line(note, wraps=True)
    for note in (*_list_unknown_modules(manifest), *_list_accepted_renames(manifest)):
        print_line(note, wraps=True)
    for note in describe_ignored_files(manifest, os.environ):
        print_line(f"note: {note}", wraps=True)
    cells = pluralize(len(list_all_cells(manifest)), "cell")
    models = pluralize(len(manifest.models), "model")
    print_line(f"{models}, {cells}: {pluralize(len(problems), 'problem')}")
    return ExitCode.RED if problems else ExitCode.OK


def _list_repeated_axes(manifest: Manifest) -> Iterator[str]:
    """Yield a note for each input or output that has one axis twice."""
    for model in manifest.models:
        for item in (*model.inputs, *model.outputs):
            names = [dim for dim in item.shape if isinstance(dim, str)]
            for name in dict.fromkeys(each for each in names if names.count(each) > 1):
                prefix = f"{model.manifest}:{model.line}: models.{model.id}"
                yield (
                    f"note: {prefix}: '{item.name}' has the axis '{name}' twice, so only equal "
                    "sizes are proved; give each dimension a name of its own if they can differ"
                )


def _list_accepted_renames(manifest: Manifest) -> Iterator[str]:
    """Yield a note for each `was` that the baseline needs no longer."""
    path = ReportPaths(manifest.project).baseline
    for model in manifest.models if path.exists() else ():
        if model.was and (path / f"{model.id}.json").exists():
            prefix = f"{model.manifest}:{model.line}: models.{model.id}"
            yield f"note: {prefix}.was: the baseline has the new ID; remove `was` after the merge"


def _list_unknown_modules(manifest: Manifest) -> Iterator[str]:
    """Yield a note for each source whose module is not found here, but one with a near name."""
    root = Path(manifest.project.root)
    for model in manifest.models:
        module = model.source.rpartition(":")[0]
        folders = (str((root / model.manifest).parent), str(root))
        if "/" in module or module.endswith(".py") or find_module_file(module, folders):
            continue
        if hint := suggest_module(module, folders):
            prefix = f"{model.manifest}:{model.line}: models.{model.id}"
            yield f"note: {prefix}: no module '{module}' is found here{hint}"


class CellDecision(FrozenModel):
    """The action of an export for a cell."""

    cell: str
    action: Literal["run", "recheck", "restore", "keep", "skip", "unavailable"]
    exporter: str
    capture: str
    reason: str = Field(description="Why it runs or does not run; empty if it is up to date.")


class PlanDocument(FrozenModel):
    """The selected cells in the order of the manifests: `plan --json`."""

    format: Literal[1] = 1
    cells: Items[CellDecision]


@click.command()
@selection_options
@result_options
@root_option
@click.option("--force", is_flag=True, help="As `export --force` would.")
@click.option("--thorough", is_flag=True, help="As `export --thorough` would.")
@no_store_option
@json_option(PlanDocument)
def plan(
    selection: Selection, root: Path, *, no_store: bool, as_json: bool, **options_of_run: Any
) -> int:
    """Show the cells that an export would run, with the reasons."""
    options = ExportOptions(selection=selection, use_store=not no_store, **options_of_run)
    build_plan = program.plan(open_project(root), options, os.environ)
    if as_json:
        print_document(_make_plan_document(build_plan))
    else:
        show_plan(build_plan)
    return ExitCode.OK


def _make_plan_document(build_plan: program.BuildPlan) -> PlanDocument:
    """Return the decision for each selected cell."""
    decisions = build_plan.decisions
    cells = []
    for planned in build_plan.plan.selected:
        action, reason = "keep", ""
        if planned.skip:
            action, reason = planned.skip_status.value, planned.skip
        elif decisions.is_to_run(planned):
            action = "recheck" if planned.cell in decisions.rechecks else "run"
            is_invalid = planned.cell.model in build_plan.invalid_models
            reason = INVALID_ENTRY if is_invalid else decisions.reasons[planned.cell]
        elif hit := decisions.hits.get(planned.cell):
            action, reason = "restore", hit
        values = {"cell": str(planned.cell), "action": action, "reason": reason}
        route = {"exporter": planned.route.exporter, "capture": planned.route.capture}
        cells.append(CellDecision.model_validate(values | route))
    return PlanDocument(cells=tuple(cells))


class ListedModel(FrozenModel):
    """A model with its selected cells."""

    model: str
    entry: str = Field(description="FILE:LINE of its manifest.")
    owner: str = Field(description="The person or team to contact, or empty.")
    tags: Items[str]
    problems: Items[str] = Field(description="Why the entry is invalid; its cells are then red.")
    cells: Items[str]


class ListDocument(FrozenModel):
    """The models of the project: `list --json`."""

    format: Literal[1] = 1
    models: Items[ListedModel]


@click.command("list")
@selection_options
@click.option(
    "--inputs", "shows_inputs", is_flag=True, help="Show the call of each model, input by input."
)
@root_option
@json_option(ListDocument)
def list_cells(selection: Selection, root: Path, *, shows_inputs: bool, as_json: bool) -> int:
    """Show the models, their opsets, devices and exporters."""
    manifest = open_project(root)
    plan = make_plan(manifest, selection)
    if as_json:
        print_document(_make_list_document(manifest, plan.selected))
        return ExitCode.OK
    if shows_inputs:
        for model in dict.fromkeys(planned.cell.model for planned in plan.selected):
            print_line(model)
            print_table([_HEADER, *_build_call_rows(manifest.find_model(model))], indent="  ")
        return ExitCode.OK
    models = {planned.cell.model for planned in plan.selected}
    invalid = {model for model in models if manifest.find_model(model).problems}
    count = sum(planned.cell.model not in invalid for planned in plan.selected)
    print_line(f"{pluralize(len(models), 'model')}, {pluralize(count, 'cell')}")
    rows = [("MODEL", "OPSETS", "DEVICES", "EXPORTER", "OWNER", "TAGS")]
    for model, group in groupby(plan.selected, key=lambda planned: planned.cell.model):
        if model in invalid:  # its cells are unknown
            rows.append((model, "", "", "invalid entry", "", ""))
            continue
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
                manifest.find_model(model).owner,
                " ".join(manifest.find_model(model).tags),
            )
        )
    print_table(rows)
    return ExitCode.OK


def _make_list_document(manifest: Manifest, selected: Iterable[PlannedCell]) -> ListDocument:
    cells: dict[str, list[str]] = {}
    for planned in selected:
        cells.setdefault(planned.cell.model, []).append(str(planned.cell))
    specs = [manifest.find_model(model_id) for model_id in cells]
    return ListDocument(
        models=tuple(
            ListedModel(
                model=spec.id,
                entry=str(spec.location),
                owner=spec.owner,
                tags=spec.tags,
                problems=spec.problems,
                cells=tuple(cells[spec.id]),
            )
            for spec in specs
        )
    )


def _format_cell_opsets(cells: list[PlannedCell]) -> str:
    return format_opsets(planned.cell.opset for planned in cells)


def _find_document(context: click.Context, name: str) -> type[FrozenModel] | None:
    """Return the document of a command, or None if it has no `--json`."""
    group = context.find_root().command
    command = group.get_command(context, name) if isinstance(group, click.Group) else None
    return getattr(command and command.callback, "document", None)


def _list_documents(context: click.Context) -> list[str]:
    group = context.find_root().command
    names = group.list_commands(context) if isinstance(group, click.Group) else ()
    return ["manifest", *(name for name in names if _find_document(context, name))]


@click.command()
@click.argument(
    "document",
    default="manifest",
    shell_complete=lambda context, *_: _list_documents(context),
)
@click.pass_context
def schema(context: click.Context, document: str) -> int:
    """Print the JSON Schema of manifests, or of `COMMAND --json`.

    Editors complete the keys if a manifest begins with the line `#:schema PATH` of the file that
    contains it.
    """
    if document == "manifest":
        path = find_packaged_folder("docs") / "manifest.schema.json"
        click.echo(path.read_text(encoding="utf-8"), nl=False)
        return ExitCode.OK
    if (known := _find_document(context, document)) is None:
        message = f"expected {join_words(_list_documents(context), 'or')}, got '{document}'"
        raise click.BadParameter(message, param_hint="DOCUMENT")
    click.echo(json.dumps(known.model_json_schema(mode="serialization"), indent=2))
    return ExitCode.OK


#: Sections that messages name -> their page and title.
_TOPICS = {
    "weights": ("ci.md", "Weights that git does not have"),
    "losses": ("gate.md", "Losses on purpose"),
    "gitlab": ("ci.md", "GitLab"),
}
_SECTIONS = _TOPICS | {code: ("failures.md", code) for code in FAILURE_CODES}


@click.command()
@click.argument(
    "code", metavar="[TOPIC]", required=False, shell_complete=lambda *_: list(_SECTIONS)
)
def guide(code: str | None) -> int:
    """Print the guide, or one section.

    TOPIC is the code of a red cell, such as E-axis-fixed, `weights` (those that git does not have),
    `losses` (on purpose) or `gitlab`.
    """
    folder = find_packaged_folder("docs")
    if code is None:
        click.echo((folder / "start.md").read_text(encoding="utf-8"), nl=False)
        return ExitCode.OK
    if code not in _SECTIONS:
        message = f"the guide has no section '{code}'{suggest_nearest(code, _SECTIONS)}"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    page, title = _SECTIONS[code]
    text = (folder / page).read_text(encoding="utf-8")
    section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    print_line(f"{title}\n{section.rstrip()}")
    return ExitCode.OK


_HEADER = ("INPUT", "GOES TO", "DTYPE", "SHAPE", "VALUES")


def _build_call_rows(spec: ModelSpec) -> Iterator[tuple[str, ...]]:
    """Yield one row for each input in the order of the file, then constants and containers."""
    for index, item in enumerate(spec.inputs):
        shape = "a number" if item.scalar else f"[{', '.join(map(str, item.shape))}]"
        dtype = f"{item.dtype}, optional" if item.optional else item.dtype
        # A function of the user may return inputs without a known position in the call.
        target = item.at or f"tensor {index} of the call"
        fill = format_fill(item.fill)
        if spec.inputs_from and item.fill.kind == "function":
            fill = spec.inputs_from.function
        yield item.name, target, dtype, shape, fill
    for constant in spec.constants:
        value = "None" if constant.value is None else json.dumps(constant.value)
        yield "", constant.at, "", "", f"always {value}"
    for container in spec.containers:
        kind = container.type if container.is_object else f"a {container.type}"
        yield "", container.at, "", "", kind


def _find_inconsistencies(manifest: Manifest) -> Iterator[Problem]:
    """Yield each problem of the baseline and of the pages."""
    plan = make_plan(manifest)
    path = ReportPaths(manifest.project).baseline
    if path.exists():  # a new project has no baseline; its gate reports that
        baseline = read_baseline(path)
        require_former_ids(manifest, baseline.models.keys())
        renames = find_renames(manifest, baseline.models.keys())
        for old, new in renames.items():
            message = f"was {old} in the baseline; run `exporter baseline` to rename it there"
            yield Problem(key=new, message=message)
        accepted = {outcome.cell for outcome in rename_models(baseline, renames).cells}
        planned = {planned.cell for planned in plan.cells}
        added = "is not in the baseline; run `exporter export` and `exporter baseline` to accept it"
        removed = "is in the baseline but in no manifest; run `exporter baseline` to remove it"
        for cells, problem in ((planned - accepted, added), (accepted - planned, removed)):
            in_order = sorted(cells, key=lambda cell: cell.sort_key)
            for group in group_by_opset(in_order, lambda cell: cell, lambda _: ""):
                yield Problem(key=group.label, message=problem)
    build_folder = BuildFolder.from_project(manifest.project)
    if not build_folder.results.exists() or not reports_folder.are_pages_unmodified(
        manifest.project
    ):
        # Another machine wrote the pages.
        if problem := find_merge_error(manifest):
            message = f"{problem}; run `exporter export`"
            yield Problem(key=manifest.project.reports, message=message)
        return
    results = filter_valid_results(read_run(build_folder.results), manifest, plan)
    results = drop_changed_files(results, build_folder.path)
    missing = results.missing.items()
    for changed in group_by_opset(missing, lambda item: item[0], lambda item: item[1]):
        reason = changed.first[1]
        message = f"the tables are stale: {reason}; run `exporter export`"
        yield Problem(key=changed.label, message=message)
    if not missing:
        for name in reports_folder.find_stale_pages(manifest, results.run):
            yield Problem(
                key=f"{manifest.project.reports}/{name}",
                message="is stale; run `exporter report`",
            )
