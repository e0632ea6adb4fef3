"""Cells that do not pass, with everything that a user needs to fix them; and flaky cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from exporter.core.text import format_two_digits
from exporter.manifest import Project
from exporter.records.record import Record, Status
from exporter.report.formats import MARKS, clean_detail, clean_message, replace_repetition
from exporter.report.rows.acceptance import AcceptanceHistory
from exporter.report.rows.cells import (
    Cell,
    Row,
    describe_reason,
    group_by_opset,
    group_cells,
    mask_numbers,
)
from exporter.report.rows.failure_reasons import FailureReasons, explain_failure

#: Lines of a detail on the page. The end of a log is its most useful part.
_DETAIL_LINES = 20


def build_failure_rows(
    cells: Sequence[Cell], project: Project, history: AcceptanceHistory
) -> tuple[Row, ...]:
    """Return the red cells, then the other cells that do not pass.

    Args:
        cells: The cells of a model.
        project: Defines the build folder, which contains the logs, and the command.
        history: The accepted outcomes. Cells with different ones are in different rows.
    """
    groups = group_cells(
        (cell for cell in cells if cell.mark is not MARKS[Status.PASS]),
        lambda cell: (history.describe(cell), cell.record and cell.record.flaky),
    )
    rows = []
    for group in sorted(groups, key=lambda group: not group.first.is_red):
        cell = group.first
        record = cell.record
        rows.append(
            {
                "label": group.label,
                "cell": str(cell.id),
                "mark": cell.mark,
                "is_red": cell.is_red,
                "outcome": cell.outcome,
                "reason": describe_reason(group),
                "expected_reason": cell.expected_reason,
                "acceptance": history.describe(cell),
                "flaky": clean_message(record.flaky) if record else "",
                "reasons": explain_failure(record, project.command) if record else FailureReasons(),
                "failed_checks": _list_failed_checks(record) if record else (),
                "detail": keep_last_lines(clean_detail(record.detail)) if record else "",
                "log": f"{project.build}/{record.log}" if record and record.log else "",
                "export_command": cell.format_command(project.command),
            }
        )
    return tuple(rows)


def _list_failed_checks(record: Record) -> tuple[Row, ...]:
    message = clean_message(record.message)
    return tuple(
        {
            "check": result.check,
            "mark": MARKS[result.status],
            "message": replace_repetition(clean_message(result.message), message),
            "figures": ", ".join(
                f"{name} {format_two_digits(value)}" for name, value in result.metrics.items()
            ),
        }
        for result in record.checks
        if result.status is not Status.PASS
    )


def keep_last_lines(text: str) -> str:
    """Return the last lines of a detail."""
    return "\n".join(text.rstrip().splitlines()[-_DETAIL_LINES:])


def build_flaky_rows(cells: Iterable[Cell]) -> tuple[Row, ...]:
    """Return the flaky cells, red or not."""
    flaky = ((cell, cell.record.flaky) for cell in cells if cell.record and cell.record.flaky)
    groups = group_by_opset(
        flaky, lambda item: item[0].id, lambda item: (item[0].outcome, mask_numbers(item[1]))
    )
    return tuple(
        {
            "mark": group.first[0].mark,
            "label": group.label,
            "previous": clean_message(group.first[1]),
        }
        for group in groups
    )
