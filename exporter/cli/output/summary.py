"""The end of an export on the terminal: a table for each device, the counts, what is red and why.

In: a manifest, its plan and the records. Out: lines, and the exit code that they deserve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from exporter.cache.noop_snapshot import ExportSummary
from exporter.cli.output.terminal import choose_color, print_line
from exporter.core.errors import ExitCode
from exporter.core.sanitize import join_lines
from exporter.core.text_format import pluralize
from exporter.manifest import Manifest, Style
from exporter.planning.plan import Plan, PlannedCell
from exporter.records.baseline import extract_outcome
from exporter.records.record import Record, RunRecord, Status
from exporter.report import Mark, choose_mark
from exporter.report.rows.failure_reasons import explain_failure, summarize_failure
from exporter.report.rows.opset_groups import group_by_opset, mask_numbers


def show_summary(manifest: Manifest, plan: Plan, run: RunRecord, *, taken: int = 0) -> int:
    """Shows what became of the selected cells; the answer is the exit code."""
    said = make_summary(manifest, plan, run, taken=taken)
    print_summary(said)
    return said.code


def print_summary(said: ExportSummary) -> None:
    """Shows it line by line."""
    for line, colour in said.lines:
        print_line(line, color=colour)


def make_summary(
    manifest: Manifest, plan: Plan, run: RunRecord, *, taken: int = 0
) -> ExportSummary:
    """What became of the selected cells; RED where one of them is red or has no record.

    `taken` says how many of them came from the store.
    """
    known = run.by_cell()
    records = [known.get(str(planned.cell)) for planned in plan.selected]
    found = [record for record in records if record]
    red = [record for record in found if record.status.is_red]
    lines: list[tuple[str, str | None]] = []
    for device in dict.fromkeys(planned.cell.device for planned in plan.selected):
        here = [p for p in plan.selected if p.cell.device == device]
        rows = format_grid(here, known, manifest.project.style)
        lines += [(line, None) for line in ("", *rows)]
    thorough = sum(record.thorough for record in found)
    closely = f", {thorough} of them looked at thoroughly" if thorough else ""
    stored = f", {taken} of them taken from the store" if taken else ""
    last = f"{pluralize(len(records), 'cell')}: {format_counts(records)}{closely}{stored}"
    code = ExitCode.RED if red or len(found) < len(records) else ExitCode.OK
    return ExportSummary(
        lines=(*lines, ("", None), *_red_lines(manifest, red), (last, None)), code=code
    )


def format_grid(
    cells: Sequence[PlannedCell], known: dict[str, Record], style: Style = "emoji"
) -> list[str]:
    """Models by opsets, a mark for each cell; the marks are two columns wide, like the opsets."""
    opsets = sorted({planned.cell.opset for planned in cells})
    models = dict.fromkeys(planned.cell.model for planned in cells)
    promised = {(planned.cell.model, planned.cell.opset): planned for planned in cells}
    width = max(len(model) for model in models)
    lines = [f"{cells[0].cell.device:{width}}  " + " ".join(f"{opset:2}" for opset in opsets)]
    for model in models:
        marks = []
        for opset in opsets:
            planned = promised.get((model, opset))
            mark = choose_mark(known.get(str(planned.cell))) if planned else None
            marks.append(_sign(mark, style))
        lines.append(f"{model:{width}}  {' '.join(marks)}".rstrip())
    return lines


def _sign(mark: Mark | None, style: Style) -> str:
    """Two columns: a symbol takes both, a letter one."""
    if mark is None:
        return "  "
    return mark.symbol if style == "emoji" else f" {mark.letter}"


def format_counts(records: Sequence[Record | None]) -> str:
    """`12 pass, 1 fail`, in the order of the statuses."""
    by_word = Counter(choose_mark(record).word for record in records)
    order = [status.value for status in Status]
    words = sorted(by_word, key=lambda word: order.index(word) if word in order else len(order))
    return ", ".join(f"{by_word[word]} {word}" for word in words)


def format_red_line(label: str, record: Record) -> str:
    """One line that says what is wrong with a cell, or with cells that are alike."""
    message = join_lines(record.message)
    if record.expectation:
        message += f" ({join_lines(record.expectation)})"
    return f"{label}: {extract_outcome(record)}: {message}"


def _hints(manifest: Manifest, record: Record) -> Iterator[str]:
    """Where it is promised, and how to see it again."""
    yield f"promised at {manifest.find_model(record.cell.model).location}"
    reasons = explain_failure(record, manifest.project.command)
    if (
        reasons.lines and not record.blame and not record.missing
    ):  # else `summarize_failure` names them
        yield f"in the model at {', '.join(reasons.lines)}"
    if reasons.reproduce:
        yield f"show it without this tool: {reasons.reproduce}"


def _red_lines(manifest: Manifest, red: Sequence[Record]) -> Iterator[tuple[str, str | None]]:
    folds = group_by_opset(
        red,
        lambda record: record.cell,
        lambda record: (str(extract_outcome(record)), mask_numbers(record.message)),
    )
    for alike in folds:
        yield format_red_line(alike.label, alike.first), choose_color(alike.first.status)
        if short := summarize_failure(alike.first):
            yield f"    {join_lines(short)}", None
        for hint in _hints(manifest, alike.first):
            yield f"    {hint}", None
        if alike.first.log:
            yield f"    log: {manifest.project.build}/{alike.first.log}", None
