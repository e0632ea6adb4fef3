"""`exporter baseline`: accepts the results as they are, all of them or some with a reason."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from exporter.build import Results
from exporter.cli.options.selection import root_option
from exporter.cli.output.findings import show_findings
from exporter.cli.output.terminal import print_error, print_line
from exporter.cli.workflows.report import publish
from exporter.cli.workflows.results import read_results
from exporter.core.errors import (
    ExitCode,
    ExporterError,
    Problem,
    suggest_nearest,
)
from exporter.core.text_format import pluralize
from exporter.gate import (
    GateFinding,
    accept_all,
    accept_some,
    compare_results,
)
from exporter.manifest import Manifest, load_project
from exporter.planning.plan import make_plan, pattern_matches
from exporter.records.baseline import (
    Baseline,
    extract_outcomes,
    parse_cell,
    read_baseline,
    write_baseline,
)
from exporter.records.history import (
    HISTORY_FILE,
    extend_history,
    read_history,
    write_history,
)
from exporter.records.record import CellId, RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class _Project:
    """What is accepted, and what was found of what is promised."""

    manifest: Manifest
    results: Results
    run: RunRecord
    planned: frozenset[str]
    before: Baseline
    path: Path

    @property
    def findings(self) -> tuple[GateFinding, ...]:
        """What nobody has accepted."""
        gate = self.manifest.project.gate
        return compare_results(self.before, self.run, self.planned, gate)


@click.group(invoke_without_command=True)
@root_option
@click.pass_context
def command(context: click.Context, root: Path) -> int:
    """Accept results; `update` accepts some, with a reason."""
    if context.invoked_subcommand is not None:
        context.obj = root
        return ExitCode.OK
    project = _project(root)
    if project.results.missing:
        count = pluralize(len(project.results.missing), "promised cell")
        print_error(f"not accepted: {count} without a result; run `exporter export` first")
        return ExitCode.RED
    show_findings(project.findings)
    run, gate = project.run, project.manifest.project.gate
    _accept(project, accept_all(project.before, extract_outcomes(run), run.tools, gate))
    _say_accepted(project, len(run.records))
    return ExitCode.OK


@command.command()
@click.argument("cells", nargs=-1)
@click.option("--reason", required=True, help="Why; it is kept with each cell.")
@root_option
@click.pass_context
def update(context: click.Context, cells: tuple[str, ...], reason: str, root: Path) -> int:
    """Accept some cells with a reason; without CELLS, those that the gate finds."""
    if not reason.strip() or not reason.isprintable():
        raise ExporterError(ExitCode.MANIFEST, "--reason: expected one line of text")
    project = _project(root if root != Path() else context.obj)
    findings = project.findings
    chosen = _chosen(cells, findings, project)
    unproved = sorted(chosen & project.results.missing.keys())
    if unproved:
        for cell in unproved:
            print_error(f"{cell}: not accepted: {project.results.missing[cell]}")
        return ExitCode.RED
    if not chosen:
        print_line("everything is accepted already", color="green")
        return ExitCode.OK
    show_findings([finding for finding in findings if str(finding.cell) in chosen])
    accepted = accept_some(project.before, extract_outcomes(project.run), chosen, reason)
    _accept(project, accepted)
    _say_accepted(project, len(chosen))
    return ExitCode.OK


def _project(root: Path) -> _Project:
    manifest = load_project(root)
    results = read_results(manifest)
    planned = frozenset(str(planned.cell) for planned in make_plan(manifest).cells)
    # What the manifests no longer promise is no longer accepted either.
    kept = tuple(record for record in results.run.records if str(record.cell) in planned)
    path = Path(manifest.project.root) / manifest.project.reports / "baseline.json"
    nothing = Baseline(tools=results.run.tools, cells=())
    return _Project(
        manifest=manifest,
        results=results,
        run=results.run.model_copy(update={"records": kept}),
        planned=planned,
        before=read_baseline(path) if path.exists() else nothing,
        path=path,
    )


def _chosen(
    patterns: Sequence[str], findings: Sequence[GateFinding], project: _Project
) -> frozenset[str]:
    """The cells that the patterns mean, promised or accepted; without any, those with a finding.

    A cell that the gate finds nothing about may be named: its reason then speaks for what the
    branch asks less of it.

    Raises:
        ExporterError: NOTHING_SELECTED, where a pattern means no cell.
    """
    if not patterns:
        return frozenset(str(finding.cell) for finding in findings)
    known = {cell: parse_cell(cell) for cell in project.planned | project.before.by_cell().keys()}
    _refuse_idle(patterns, known.values())
    return frozenset(
        cell
        for cell, id in known.items()
        if any(pattern_matches(pattern, id) for pattern in patterns)
    )


def _refuse_idle(patterns: Sequence[str], cells: Collection[CellId]) -> None:
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


def _accept(project: _Project, accepted: Baseline) -> None:
    path, before = project.path.with_name(HISTORY_FILE), project.before
    # Read before anything is written: where it is damaged, nothing is half accepted.
    history = extend_history(read_history(path), before if before.cells else None, accepted)
    write_baseline(project.path, accepted)
    write_history(path, history)
    publish(project.manifest, project.results.run)  # the page shows what was accepted


def _say_accepted(project: _Project, count: int) -> None:
    print_line(
        f"accepted {pluralize(count, 'cell')}: {project.manifest.project.reports}/baseline.json"
    )
