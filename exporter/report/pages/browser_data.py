"""What `index.html` shows: every promised cell with all that is known of it, as plain values.

In: a `Manifest`, a `RunRecord` and the cells of each model. Out: `IndexData`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from exporter.core.sanitize import join_lines
from exporter.manifest import (
    Manifest,
    ModelSpec,
    Project,
    Style,
)
from exporter.records.history import History
from exporter.records.record import (
    Artifact,
    CheckResult,
    Record,
    RunRecord,
    Status,
)
from exporter.report.pages.browser_schema import (
    AcceptedData,
    CellData,
    CellView,
    CheckData,
    FileData,
    IndexData,
    IndexHead,
    MarkData,
    MissingData,
    RowData,
)
from exporter.report.rows.acceptance import (
    AcceptanceHistory,
    format_changed_tools,
    format_export_tools,
)
from exporter.report.rows.cells import Cell, find_lowest_opset
from exporter.report.rows.check_table import summarize_result
from exporter.report.rows.failure_reasons import explain_failure
from exporter.report.rows.failures import format_export_command, keep_last_lines
from exporter.report.text import number_format as figures
from exporter.report.text.markdown import quote_link_target
from exporter.report.text.status_marks import MARKS, NOT_RUN

T = TypeVar("T", bound=Hashable)

#: Steps that errors of float arithmetic seldom cross from one machine to another.
_STEPS = (0.01, 0.1, 0.5, 1.0)


def build_index_data(
    manifest: Manifest,
    run: RunRecord,
    by_model: Mapping[str, Sequence[Cell]],
    past: AcceptanceHistory,
) -> IndexData:
    """Lays out the page.

    Args:
        manifest: What is promised.
        run: Where the versions of the tools come from.
        by_model: Every model's cells.
        past: What was accepted before.
    """
    cells = [cell for of_model in by_model.values() for cell in of_model]
    rows = tuple(
        _row(spec, device, by_model[spec.id], _Around(project=manifest.project, past=past))
        for spec in manifest.models
        for device in dict.fromkeys(spec.devices)
    )
    green = sum(cell.record is not None and cell.record.status.is_green for cell in cells)
    head = IndexHead(
        summary=f"{green} of {len(cells)} cells of {len(by_model)} models are green",
        marks=_marks(cells, manifest.project.style),
        devices=tuple(dict.fromkeys(row.device for row in rows)),
        tools=tuple(
            (join_lines(name), join_lines(said)) for name, said in sorted(run.tools.items())
        ),
        history=tuple(_accepted(past.history)),
    )
    return IndexData(head=head, rows=rows)


def _accepted(history: History) -> Iterable[AcceptedData]:
    before: dict[str, str] = {}
    for entry in history.entries:
        yield AcceptedData(
            tools=format_changed_tools(before, entry)
            if before
            else format_export_tools(entry.tools),
            counts={join_lines(word): count for word, count in entry.counts.items()},
            changes=tuple(
                (join_lines(each.cell), join_lines(each.before), join_lines(each.after))
                for each in entry.changes
            ),
        )
        before = entry.tools


@dataclass(frozen=True, slots=True, kw_only=True)
class _Around:
    """What all rows share."""

    project: Project
    past: AcceptanceHistory


class _Once(Generic[T]):
    """Equal items, kept once."""

    def __init__(self) -> None:
        self.places: dict[T, int] = {}

    def place(self, item: T) -> int:
        return self.places.setdefault(item, len(self.places))


def _marks(cells: Iterable[Cell], style: Style) -> tuple[MarkData, ...]:
    words = [cell.mark.word for cell in cells]
    kinds = [*((_family(status), mark) for status, mark in MARKS.items()), ("open", NOT_RUN)]
    return tuple(
        MarkData(
            word=mark.word,
            symbol=mark.symbol if style == "emoji" else mark.letter,
            meaning=mark.meaning,
            family=family,
            cells=words.count(mark.word),
        )
        for family, mark in kinds
    )


def _family(status: Status) -> str:
    if status is Status.XFAIL:
        return "foreseen"
    return "good" if status.is_green else "bad" if status.is_red else "open"


def _row(spec: ModelSpec, device: str, of_model: Sequence[Cell], around: _Around) -> RowData:
    outcomes: _Once[CellView] = _Once()
    checks: _Once[tuple[CheckData, ...]] = _Once()
    files: _Once[FileData] = _Once()
    here = [cell for cell in of_model if cell.id.device == device]
    build, command = around.project.build, around.project.command
    cells = []
    for cell in here:
        record = cell.record
        results = record.checks if record else ()
        error = max((_of_limit(result) for result in results), default=-math.inf)
        cells.append(
            CellData(
                opset=cell.id.opset,
                mark=cell.mark.word,
                outcome=outcomes.place(_outcome(cell, around.past)),
                checks=checks.place(tuple(_check(result) for result in results)),
                file=files.place(_file(record, record.artifact))
                if record and record.artifact
                else -1,
                error=_step(error),
                boundless=error == math.inf,
                log=join_lines(f"{build}/{record.log}") if record and record.log else "",
                rerun=join_lines(format_export_command(str(cell.id), command)),
                reproduce=join_lines(explain_failure(record, command).reproduce) if record else "",
            )
        )
    return RowData(
        model=spec.id,
        device=join_lines(device),
        page=f"models/{quote_link_target(spec.id)}.md",
        promised=join_lines(str(spec.location)) if any(cell.is_red for cell in here) else "",
        description=join_lines(spec.description),
        tags=join_lines(", ".join(spec.tags)),
        owner=join_lines(spec.owner),
        works_from=find_lowest_opset(here),
        outcomes=tuple(outcomes.places),
        checks=tuple(checks.places),
        files=tuple(files.places),
        cells=tuple(cells),
    )


def _outcome(cell: Cell, past: AcceptanceHistory) -> CellView:
    record = cell.record
    if record is None:
        return CellView(outcome=cell.outcome, why=cell.why)
    reasons = explain_failure(record)
    return CellView(
        outcome=join_lines(cell.outcome),
        stage=record.stage or "",
        check=join_lines(record.check or ""),
        why=cell.why,
        foreseen=cell.foreseen,
        since="" if cell.is_pass else past.since(cell),
        lines=join_lines(", ".join(reasons.lines)),
        culprit=reasons.culprit,
        sample=join_lines(reasons.sample),
        first=join_lines(reasons.first),
        evidence=reasons.evidence,
        missing=tuple(
            MissingData(
                operator=join_lines(item.operator),
                count=item.count,
                sources=join_lines(item.sources),
            )
            for item in reasons.missing
        ),
        advice=tuple(join_lines(line) for line in reasons.advice),
        detail=keep_last_lines(figures.clean_detail(record.detail)),
        notes=tuple(figures.clean_message(note) for note in record.notes),
        flaky=figures.clean_message(record.flaky),
    )


def _check(result: CheckResult) -> CheckData:
    return _check_of(result.check, result.status, result.message, tuple(result.metrics.items()))


@lru_cache(maxsize=1 << 15, typed=True)  # many cells say the same
def _check_of(
    check: str, status: Status, message: str, metrics: tuple[tuple[str, int | float | str], ...]
) -> CheckData:
    said = summarize_result(status, metrics).figures
    if status is not Status.PASS:  # somebody must act on its digits
        said = tuple(f"{name} {figures.two_digits(value)}" for name, value in metrics)
    return CheckData(
        check=join_lines(check),
        mark=MARKS[status].word,
        message=figures.clean_message(message),
        figures=join_lines(", ".join(said)),
    )


def _file(record: Record, artifact: Artifact) -> FileData:
    route = record.route
    return FileData(
        exporter=f"{route.exporter} ({route.capture})" if route else "",
        size=figures.size(artifact.bytes),
        bytes=int(float(f"{artifact.bytes:.3g}")),
        nodes=figures.format_count(artifact.nodes),
        parameters=figures.format_count(artifact.parameters),
        ir_version=artifact.ir_version,
    )


def _of_limit(result: CheckResult) -> float:
    """The error of a check as a multiple of its limit; less than any where it compared nothing."""
    value = result.metrics.get("of_limit")
    if not isinstance(value, int | float):
        return -math.inf
    return math.inf if math.isnan(value) else float(value)


def _step(error: float) -> float | None:
    if not math.isfinite(error):
        return None
    for step in _STEPS:
        if error <= step:
            return step
    return float(figures.two_digits(error))
