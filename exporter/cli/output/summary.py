"""The summary of an export: a table for each device, the counts, and the red cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from exporter.cache.noop_snapshot import ExportSummary
from exporter.cli.output.terminal import choose_color
from exporter.core.errors import ExitCode
from exporter.core.text import join_lines, pluralize
from exporter.manifest import Manifest, Style
from exporter.planning import Selection
from exporter.planning.plan import Plan, PlannedCell, make_plan
from exporter.records.record import CellId, Record, RunRecord, Status
from exporter.report.formats import choose_mark
from exporter.report.rows.artifacts import format_timings, sum_timings
from exporter.report.rows.cells import group_by_opset, mask_numbers
from exporter.report.rows.failures import explain_failure, summarize_failure

#: Lines of a summary that refer to the folder of a project, which a test does not have.
_PROJECT_LINES = ("    promised at ", "    reproduce: ", "    log: ")


def make_summary(
    manifest: Manifest,
    plan: Plan,
    run: RunRecord,
    *,
    restored: int = 0,
    timings: bool = False,
    grid: bool = True,
) -> ExportSummary:
    """Return the summary of the selected cells.

    Returns:
        The summary with the exit code RED if a selected cell is red or has no record, else
        MANIFEST if a manifest file has a problem.
    """
    by_cell = run.by_cell()
    records = [by_cell.get(planned.cell) for planned in plan.selected]
    existing = [record for record in records if record]
    red = [record for record in existing if record.status.is_red]
    lines: list[tuple[str, str | None]] = []
    for device in dict.fromkeys(planned.cell.device for planned in plan.selected if grid):
        cells = [planned for planned in plan.selected if planned.cell.device == device]
        rows = format_grid(cells, by_cell, manifest.project.style)
        lines += [(line, None) for line in ("", *rows)]
    thorough = sum(record.thorough for record in existing)
    thorough_text = f", {thorough} of them proved thoroughly" if thorough else ""
    restored_text = f", {restored} of them restored from the store" if restored else ""
    counts = f"{pluralize(len(records), 'cell')}: {format_counts(records)}"
    last = f"{counts}{thorough_text}{restored_text}"
    timing_lines = []
    if timings:
        stages, checks = sum_timings(existing)
        total = sum(stages.values())
        timing_lines.append(f"time of the workers: {total:.1f} s: {format_timings(stages)}")
        timing_lines.append(f"of that, by check: {format_timings(checks)}")
    is_red = bool(red) or len(existing) < len(records)
    green_code = ExitCode.MANIFEST if manifest.problems else ExitCode.OK
    return ExportSummary(
        lines=(
            *lines,
            *([("", None)] if grid else ()),
            *_format_red_groups(manifest, red),
            *(_format_unavailable(existing) if grid else ()),
            *((line, None) for line in timing_lines),
            *_format_initial_weights(existing),
            (last, "red" if is_red else "green"),
        ),
        code=ExitCode.RED if is_red else green_code,
    )


def describe_failures(manifest: Manifest, red: Sequence[Record]) -> str:
    """Return the lines of the terminal for red cells, without those about a project's folder."""
    cells = tuple(map(str, (record.cell for record in red)))
    plan = make_plan(manifest, Selection(patterns=cells))
    summary = make_summary(manifest, plan, RunRecord(tools={}, records=tuple(red)), grid=False)
    lines = (line for line, _ in summary.lines)
    return "\n".join(line for line in lines if not line.startswith(_PROJECT_LINES))


def format_grid(
    cells: Sequence[PlannedCell], records: Mapping[CellId, Record], style: Style = "emoji"
) -> list[str]:
    """Return a table of models and opsets with a mark of two columns for each cell."""
    opsets = sorted({planned.cell.opset for planned in cells})
    models = dict.fromkeys(planned.cell.model for planned in cells)
    by_opset = {(planned.cell.model, planned.cell.opset): planned for planned in cells}
    device = cells[0].cell.device
    width = max(len(name) for name in (device, *models))
    lines = [f"{device:{width}}  " + " ".join(f"{opset:2}" for opset in opsets)]
    for model in models:
        marks = []
        for opset in opsets:
            if planned := by_opset.get((model, opset)):
                mark = choose_mark(records.get(planned.cell))
                # A symbol has two columns, a letter one.
                marks.append(mark.symbol if style == "emoji" else f" {mark.letter}")
            else:
                marks.append("  ")
        lines.append(f"{model:{width}}  {' '.join(marks)}".rstrip())
    return lines


def format_counts(records: Sequence[Record | None]) -> str:
    """Return the number of records per status: `12 pass, 1 fail`."""
    by_word = Counter(choose_mark(record).word for record in records)
    order = [status.value for status in Status]
    words = sorted(by_word, key=lambda word: order.index(word) if word in order else len(order))
    return ", ".join(f"{by_word[word]} {word}" for word in words)


def format_red_line(label: str, record: Record) -> str:
    """Return one line with the outcome and the problem of a cell or a group of cells."""
    message = join_lines(record.message)
    if record.expectation:
        message += f" ({join_lines(record.expectation)})"
    return f"{label}: {record.outcome}: {message}"


def _format_initial_weights(records: Sequence[Record]) -> Iterator[tuple[str, str | None]]:
    """Yield a line with the models that have initial weights."""
    texts = {each.cell.model: each.initial_weights for each in records if each.initial_weights}
    if texts:
        subject = next(iter(texts)) if len(texts) == 1 else pluralize(len(texts), "model")
        weights = ", ".join(sorted(set(texts.values())))
        yield f"{subject}: weights: {weights}; `weights` in an entry names trained ones", None


def _format_unavailable(records: Sequence[Record]) -> Iterator[tuple[str, str | None]]:
    """Yield a line for each device and reason, as a missing package is repaired only if known."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.status is Status.UNAVAILABLE:
            key = (str(record.cell.device), mask_numbers(record.message))
            groups.setdefault(key, []).append(record)
    for (device, _), group in groups.items():
        count = pluralize(len(group), "cell")
        yield f"{device}: {count} unavailable: {join_lines(group[0].message)}", None


def _format_red_groups(
    manifest: Manifest, red: Sequence[Record]
) -> Iterator[tuple[str, str | None]]:
    groups = group_by_opset(
        red,
        lambda record: record.cell,
        lambda record: (record.outcome, mask_numbers(record.message)),
    )
    for group in groups:
        record = group.first
        yield format_red_line(group.label, record), choose_color(record.status)
        code = record.failure_code
        yield f"    code: {code}, explained by `exporter guide {code}`", None
        for advice in record.advice:
            yield f"    advice: {join_lines(advice)}", None
        if (line := summarize_failure(record)) and (record.blame or record.missing):
            yield f"    {join_lines(line)}", None
        for obstacle in record.obstacles:
            yield f"    obstacle: {join_lines(obstacle)}", None
        yield f"    promised at {manifest.find_model(record.cell.model).location}", None
        reasons = explain_failure(record, manifest.project.command)
        # `summarize_failure` contains the lines of the model in these two cases.
        if reasons.lines and not record.blame and not record.missing:
            yield f"    in the model at {', '.join(reasons.lines)}", None
        if reasons.repro_command:
            yield f"    reproduce: {reasons.repro_command}", None
        if record.log:
            yield f"    log: {manifest.project.build}/{record.log}", None
