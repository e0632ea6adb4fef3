"""What the checks said, opset by opset.

In: a model's `Cell`s on one device. Out: a `CheckTable`; opsets at which all said the same are one
row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from exporter.records.record import CheckResult, Status
from exporter.report.rows.cells import Cell
from exporter.report.rows.opset_ranges import fold
from exporter.report.text import number_format as figures
from exporter.report.text.status_marks import MARKS, Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCell:
    """What one check said."""

    mark: Mark
    figures: tuple[str, ...]
    """`error ≤ 1e-4`: rounded so that other machines say the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """Opsets at which every check said the same."""

    opsets: str
    said: tuple[CheckCell | None, ...]
    """By check; None where it did not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTable:
    """Checks by opsets on one device."""

    device: str
    checks: tuple[str, ...]
    rows: tuple[CheckRow, ...]

    @property
    def marks(self) -> frozenset[Mark]:
        """Every mark in the table."""
        return frozenset(said.mark for row in self.rows for said in row.said if said)


def check_table(device: str, cells: Sequence[Cell]) -> CheckTable:
    """Lays out the checks of the cells that were checked at all."""
    checked = [cell for cell in cells if cell.record and cell.record.checks]
    checks = tuple(dict.fromkeys(result.check for cell in checked for result in _results(cell)))
    folds = fold(checked, lambda cell: cell.id, lambda cell: _row(cell, checks))
    rows = tuple(
        CheckRow(opsets=same.opset_ranges, said=_row(same.first, checks)) for same in folds
    )
    return CheckTable(device=device, checks=checks, rows=rows)


def _results(cell: Cell) -> Iterable[CheckResult]:
    return cell.record.checks if cell.record else ()


def _row(cell: Cell, checks: Sequence[str]) -> tuple[CheckCell | None, ...]:
    said = {result.check: said_by(result) for result in _results(cell)}
    return tuple(said.get(check) for check in checks)


def said_by(result: CheckResult) -> CheckCell:
    """The mark of a check, and those of its figures that another machine would show too."""
    return said_of(result.status, tuple(result.metrics.items()))


@lru_cache(maxsize=1 << 15, typed=True)  # asked for several times, and many cells say the same
def said_of(status: Status, metrics: tuple[tuple[str, float | str], ...]) -> CheckCell:
    """The same, of a status and the metrics as pairs."""
    said = (_figure(name, value) for name, value in metrics)
    return CheckCell(mark=MARKS[status], figures=tuple(figure for figure in said if figure))


def _figure(name: str, value: float | str) -> str:
    """A figure that another machine would show too; empty for one that it would not."""
    match name, value:
        case "of_limit", float():
            # No error and no limit have no share of each other that says more than the error.
            return "" if value in (0.0, math.inf) else figures.of_limit(value)
        case "max_abs", float():
            return f"error {figures.magnitude(value)}"
        case "nodes", _:  # an optimiser that knows another processor leaves another number
            return ""
        case _, float():
            return ""
        case _:
            return f"{name} {value}"
