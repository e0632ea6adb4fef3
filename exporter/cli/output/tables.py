"""Tables and lines of the commands: calls, plans, problems, findings, notes and the store."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.cli.output.terminal import print_error, print_line, print_problem, print_table
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import write_text
from exporter.core.text import format_bytes, pluralize
from exporter.gate.finding import GateFinding
from exporter.manifest import Manifest, ModelSpec, Project, load_project
from exporter.records.record import CellId
from exporter.report.rows.cells import group_by_opset
from exporter.report.rows.failures import (
    FindingContext,
    GateContext,
    find_context,
    group_findings,
    name_subject,
    shorten_diff,
)
from exporter.report.rows.matrix import format_fill

if TYPE_CHECKING:  # most commands print only some of these tables
    from exporter.api.export_run import BuildPlan
    from exporter.api.gate_run import ValidResults
    from exporter.cache.store import StoreStatistics


def open_project(root: Path) -> Manifest:
    """Return the manifest, and print its problems. The cells of an invalid entry are red.

    Raises:
        ExporterError: MANIFEST if no entry can be read.
    """
    manifest = load_project(root, keep_invalid=True)
    print_file_problems(manifest)
    for spec in manifest.models:
        if spec.problems:
            count = pluralize(len(spec.problems), "problem")
            command = manifest.project.command.format("check")
            print_error(f"{spec.location}: {spec.id}: {count}; `{command}` lists them")
    return manifest


def print_file_problems(manifest: Manifest) -> None:
    """Print the problems that belong to no cell."""
    for problem in manifest.problems:
        print_problem(problem)


def require_readable_files(manifest: Manifest) -> None:
    """Raise an error if the models of a file are unknown, before their results are removed.

    Raises:
        ExporterError: MANIFEST, with the problems.
    """
    if manifest.problems:
        raise ExporterError(ExitCode.MANIFEST, manifest.problems)


def print_result_notes(current: ValidResults) -> None:
    """Print the tools with another version, and the cells without a result."""
    if current.other_tools:
        print_error(
            f"warning: the results were created with {current.other_tools}; run `exporter export` "
            "to prove them with the current tools"
        )
    print_missing(current.results.missing)


def print_missing(missing: Mapping[CellId, str]) -> None:
    """Print the cells without a result and the reason, one line per group."""
    for group in group_by_opset(missing.items(), lambda item: item[0], lambda item: item[1]):
        print_error(f"{group.label}: no result: {group.first[1]}")


HEADER = ("INPUT", "GOES TO", "DTYPE", "SHAPE", "VALUES")


def build_call_rows(spec: ModelSpec) -> Iterator[tuple[str, ...]]:
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


def show_plan(build_plan: BuildPlan) -> None:
    """Print the counts, then the decision, the route and the reason of each group of opsets."""
    plan, decisions = build_plan.plan, build_plan.decisions
    run, restored = len(decisions.to_run), len(decisions.hits)
    unchanged = len(plan.to_run) - run - restored
    skipped = len(plan.selected) - len(plan.to_run)
    counts = f"{pluralize(run, 'cell')} to run, {unchanged} to keep, {skipped} to skip"
    print_line(f"{counts}, {restored} to restore from the store" if restored else counts)
    rows: list[tuple[CellId, tuple[str, str, str]]] = []
    for planned in plan.selected:
        cell = planned.cell
        route = f"{planned.route.exporter} {planned.route.capture}"
        if not planned.route.is_export:
            route = planned.route.title
        if planned.skip:
            rows.append((cell, (planned.skip_status.value, "", planned.skip)))
        elif decisions.is_to_run(planned):
            rows.append((cell, ("run", route, decisions.reasons[cell])))
        elif hit := decisions.hits.get(cell):
            rows.append((cell, ("restore", route, f"from the store: {hit.reason}")))
        else:
            rows.append((cell, ("keep", route, "up to date")))
    for note in build_plan.notes:
        print_line(note)
    groups = group_by_opset(rows, lambda row: row[0], lambda row: row[1])
    print_table((group.label, *group.first[1]) for group in groups)


#: The file name in the build folder.
_FILE = "store.json"


def show_statistics(project: Project, statistics: StoreStatistics | None) -> None:
    """Print the counts, and write them to `store.json` in the build folder.

    Raises:
        ExporterError: if the file cannot be written.
    """
    from exporter.cache.store import StoreStatistics

    counts = statistics or StoreStatistics()
    write_text(Path(project.root) / project.build / _FILE, counts.to_json())
    if statistics is None:
        print_line("store: off")
        return
    hits = f"{counts.local_hits + counts.remote_hits} hits ({counts.remote_hits} remote)"
    restored = format_bytes(counts.restored_bytes)
    print_line(f"store: {hits}, {counts.misses} misses, {restored} restored")
    if counts.downloaded_files or counts.failed_downloads or counts.rejected:
        size = format_bytes(counts.downloaded_bytes)
        line = f"downloaded: {pluralize(counts.downloaded_files, 'file')} ({size})"
        print_line(f"{line}, {counts.failed_downloads} failed, {counts.rejected} rejected")
    if counts.uploaded_cells or counts.failed_uploads:
        cells = pluralize(counts.uploaded_cells, "cell")
        files = pluralize(counts.uploaded_files, "new file")
        size = format_bytes(counts.uploaded_bytes)
        print_line(f"uploaded: {cells}, {files} ({size}), {counts.failed_uploads} failed")
    if counts.waited_seconds:
        print_line(f"waited for the remote store: {counts.waited_seconds:.1f} s")


#: Lines of a difference in a terminal.
_DIFF_LINES = 12


def show_findings(findings: Sequence[GateFinding], context: GateContext | None = None) -> None:
    """Print the findings in groups.

    The worst one is first. Without a context, there are no hints.
    """
    for group in group_findings(findings):
        finding = group.first
        color = "green" if finding.is_improvement else "red" if finding.is_blocking else "yellow"
        warning = "" if finding.is_blocking else "warning: "
        change = f"{finding.before} -> {finding.after}"
        print_line(f"{name_subject(group)}: {warning}{finding.kind}: {change}", color=color)
        if finding.cause:
            print_line(f"    {finding.cause}", color=color, wraps=True)
        if finding.message:
            print_line(f"    {finding.message}", wraps=True)
        if context and finding.is_blocking and not finding.is_improvement:
            for hint in format_hints(find_context(group.members, context)):
                print_line(f"    {hint}", wraps=True)
        if finding.cause:
            for line in shorten_diff(finding.cause.diff, _DIFF_LINES).splitlines():
                print_line(f"        {line}")


def format_hints(context: FindingContext) -> Iterator[str]:
    """Yield the locations, the last green commit and the command to reproduce it."""
    if context.code:
        yield f"code: {context.code}, explained by `exporter guide {context.code}`"
    if context.settings:
        yield "restore the setting, or change it in a branch of its own"
    if context.locations:
        line = f"promised at {', '.join(context.locations)}"
        yield f"{line}; in the model at {', '.join(context.lines)}" if context.lines else line
    if context.acceptance:
        yield context.acceptance
    if context.repro_command:
        yield f"reproduce: {context.repro_command}"
    elif context.export_command:
        yield f"run again: {context.export_command}"
