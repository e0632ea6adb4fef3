"""`exporter baseline`: accept all results, or some of them with a reason."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

import click

from exporter.api import gate_run
from exporter.api.gate_run import Acceptance, accept, prepare_acceptance
from exporter.cli.options import complete, root_option
from exporter.cli.output.tables import (
    print_file_notes,
    print_result_notes,
    require_readable_files,
    show_findings,
)
from exporter.cli.output.terminal import print_error, print_line
from exporter.core.errors import ExitCode, ExporterError, Problem, suggest_nearest
from exporter.core.text import pluralize
from exporter.manifest import FindingKind, load_project
from exporter.pipeline.build_folder import BuildFolder
from exporter.planning.plan import pattern_matches
from exporter.records.baseline import FOLDER
from exporter.records.record import CellId
from exporter.report.rows.gate_rows import build_finding_rows, group_findings

#: Who decides about a loss.
_APPROVAL = (
    "in a pull request, this loss passes if an owner of the baseline approves the commit: "
    "see `exporter guide losses`"
)
_REFUSAL = (
    "in a pull request, this loss blocks also if it is accepted here, because accepted_here is in "
    "`block` of [tool.exporter.gate]"
)
#: The first letters of the answers in a review.
_ANSWERS = click.Choice(["a", "r", "s", "q"])


@click.group(invoke_without_command=True)
@root_option
@click.pass_context
def baseline(context: click.Context, root: Path) -> int:
    """Accept all results, or some with a reason: `update`, `review`."""
    if context.invoked_subcommand is not None:
        context.obj = root
        return ExitCode.OK
    acceptance = _prepare(root)
    if missing := acceptance.current.missing:
        count = pluralize(len(missing), "cell")
        print_error(f"not accepted: {count} without a result; run `exporter export` first")
        return ExitCode.RED
    show_findings(rows=build_finding_rows(acceptance.findings))
    accept(acceptance)
    _print_accepted(acceptance, {record.cell for record in acceptance.run.records})
    return ExitCode.OK


@baseline.command()
@click.argument("cells", shell_complete=complete("cells"), nargs=-1)
@click.option("--reason", required=True, help="The reason, stored with each cell.")
@root_option
@click.pass_context
def update(context: click.Context, cells: tuple[str, ...], reason: str, root: Path) -> int:
    """Accept some cells with a reason; without CELLS, those with a finding of the gate."""
    if not reason.strip() or not reason.isprintable():
        raise ExporterError(ExitCode.MANIFEST, "--reason: expected one line of text")
    acceptance = _prepare(root if root != Path() else context.obj)
    findings = acceptance.findings
    selected = (
        _select_cells(cells, acceptance)
        if cells
        else frozenset(finding.cell for finding in findings)
    )
    missing = acceptance.current.missing
    if unproved := sorted(selected & missing.keys(), key=lambda cell: cell.sort_key):
        for cell in unproved:
            print_error(f"{cell}: not accepted: {missing[cell]}")
        return ExitCode.RED
    if not selected:
        print_line("all results are accepted already", color="green")
        return ExitCode.OK
    accepted = [finding for finding in findings if finding.cell in selected]
    show_findings(rows=build_finding_rows(accepted))
    accept(acceptance, selected, reason)
    _print_accepted(acceptance, selected)
    gate = acceptance.manifest.project.gate
    losses = [each for each in accepted if each.is_blocking and not each.is_improvement]
    policies = [gate.find_policy(model) for model in {each.cell.model for each in losses}]
    if any(each.needs_approval for each in policies):
        print_line(_APPROVAL)
    elif any(each.find_action(FindingKind.ACCEPTED_HERE) == "block" for each in policies):
        print_line(_REFUSAL)
    return ExitCode.OK


@baseline.command()
@root_option
@click.pass_context
def review(context: click.Context, root: Path) -> int:
    """Show one change after the other; accept it with a reason, reject or skip it.

    Equal changes of a model are one change. Nothing is written before the end. The
    exit code is 1 if a change is rejected.
    """
    acceptance = _prepare(root if root != Path() else context.obj)
    result = gate_run.gate(acceptance.manifest, os.environ)
    models = dict.fromkeys(finding.cell.model for finding in result.findings)
    findings = ([each for each in result.findings if each.cell.model == name] for name in models)
    groups = [group for each in findings for group in group_findings(each)]
    reasons: dict[CellId, str] = {}
    rejected = []
    skipped = 0
    reason = ""
    for number, group in enumerate(groups, start=1):
        print_line(f"\nchange {number} of {len(groups)}")
        rows = build_finding_rows(group, result.context)
        show_findings(rows=rows)
        cells = [cell for finding in group for cell in finding.cells]
        if any(cell in acceptance.current.missing for cell in cells):
            print_line("    skipped: a cell has no result; run `exporter export`")
            skipped += 1
            continue
        choice = click.prompt(
            "accept, reject, skip or quit", type=_ANSWERS, show_choices=False, default="s"
        )
        if choice == "q":
            skipped += len(groups) - number + 1
            break
        if choice == "a":
            reason = click.prompt("reason", default=reason or None, value_proc=_read_reason)
            reasons |= dict.fromkeys(cells, reason)
        if choice == "r":
            rejected.append(rows[0].subject)
        skipped += choice == "s"
    if reasons:
        accept(acceptance, reasons)
        _print_accepted(acceptance, reasons)
    for subject in rejected:
        print_line(f"rejected: {subject}; fix it, then run `exporter export`", color="red")
    print_line(f"{pluralize(len(groups), 'change')}: {len(rejected)} rejected, {skipped} skipped")
    return ExitCode.RED if rejected else ExitCode.OK


def _read_reason(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise click.BadParameter("expected one line of text")
    return text.strip()


def _prepare(root: Path) -> Acceptance:
    manifest = load_project(root, keep_invalid=True)
    lock = BuildFolder.from_project(manifest.project).lock_committed_files()
    click.get_current_context().with_resource(lock)
    require_readable_files(manifest)
    acceptance = prepare_acceptance(manifest)
    print_result_notes(acceptance.current)
    return acceptance


def _select_cells(patterns: Sequence[str], acceptance: Acceptance) -> frozenset[CellId]:
    """Return the cells of the manifests or of the baseline, also removed ones, of the patterns.

    A cell without a finding is allowed, because a reason may explain a weaker contract.

    Raises:
        ExporterError: NOTHING_SELECTED if a pattern matches no cell.
    """
    before = acceptance.before
    cells = acceptance.planned | before.by_cell().keys() | before.dropped.keys()
    models = {cell.model for cell in cells}
    problems = [
        Problem(
            message=f"no cell matches '{pattern}'{suggest_nearest(pattern.split('/')[0], models)}"
        )
        for pattern in patterns
        if not any(pattern_matches(pattern, cell) for cell in cells)
    ]
    if problems:
        raise ExporterError(ExitCode.NOTHING_SELECTED, problems)
    return frozenset(
        cell for cell in cells if any(pattern_matches(pattern, cell) for pattern in patterns)
    )


def _print_accepted(acceptance: Acceptance, cells: Collection[CellId]) -> None:
    red = sum(record.status.is_red and record.cell in cells for record in acceptance.run.records)
    accepted = pluralize(len(cells), "cell") + (f", {red} of them red" if red else "")
    print_line(f"accepted {accepted}: {acceptance.manifest.project.reports}/{FOLDER}")
    print_file_notes(acceptance.manifest, os.environ, acceptance.run.records)
