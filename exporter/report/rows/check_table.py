"""Results of the checks by opset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from exporter.records.record import Status
from exporter.report.formats import MARKS, Mark, format_limit_share, format_magnitude
from exporter.report.rows.cells import Cell, Row, group_by_opset


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCell:
    """The result of one check."""

    mark: Mark
    figures: tuple[str, ...]
    """`error ≤ 1e-4`: rounded to values that all machines agree on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTable:
    """Checks by opsets on one device."""

    device: str
    checks: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def marks(self) -> frozenset[Mark]:
        """All marks in the table."""
        return frozenset(result.mark for row in self.rows for result in row["results"] if result)


def build_check_table(device: str, cells: Sequence[Cell]) -> CheckTable:
    """Return the table of all cells that have check results."""
    checked = [cell for cell in cells if cell.record and cell.record.checks]
    checks = tuple(
        dict.fromkeys(
            result.check for cell in checked if cell.record for result in cell.record.checks
        )
    )
    groups = group_by_opset(checked, lambda cell: cell.id, lambda cell: _list_results(cell, checks))
    rows = tuple(
        {"opsets": group.opset_ranges, "results": _list_results(group.first, checks)}
        for group in groups
    )
    return CheckTable(device=device, checks=checks, rows=rows)


def _list_results(cell: Cell, checks: Sequence[str]) -> tuple[CheckCell | None, ...]:
    results = {
        result.check: summarize_result(result.status, tuple(result.metrics.items()))
        for result in (cell.record.checks if cell.record else ())
    }
    return tuple(results.get(check) for check in checks)


@lru_cache(maxsize=1 << 15, typed=True)  # called several times, and many cells are equal
def summarize_result(status: Status, metrics: tuple[tuple[str, float | str], ...]) -> CheckCell:
    """Return the mark of a check with the figures that all machines agree on."""
    texts = (_format_figure(name, value) for name, value in metrics)
    return CheckCell(mark=MARKS[status], figures=tuple(text for text in texts if text))


def _format_figure(name: str, value: float | str) -> str:
    """Return a figure as text, or "" if it depends on the machine."""
    match name, value:
        case "of_limit", float():
            # An error of 0 and a limit of 0 have no meaningful ratio.
            return "" if value in (0.0, math.inf) else format_limit_share(value)
        case "max_abs", float():
            return f"error {format_magnitude(value)}"
        case "nodes", _:  # the optimizer of the runtime depends on the processor
            return ""
        case _, float():
            return ""
        case _:
            return f"{name} {value}"
