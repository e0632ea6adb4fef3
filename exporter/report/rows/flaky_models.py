"""Cells with another verdict for the very same inputs in two runs.

In: `Cell`s. Out: a `FlakyRow` for those of a model and device that are alike but for the opset.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from exporter.report.rows.cells import Cell
from exporter.report.rows.opset_ranges import fold, likeness
from exporter.report.text import number_format as figures
from exporter.report.text.status_marks import Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class FlakyRow:
    """What two runs said of them."""

    mark: Mark
    """Of today."""
    label: str
    said: str
    """What the run before said."""


def flaky_rows(cells: Iterable[Cell]) -> tuple[FlakyRow, ...]:
    """The flaky cells, whatever they are today."""
    known = ((cell, cell.record.flaky) for cell in cells if cell.record and cell.record.flaky)
    folds = fold(known, lambda item: item[0].id, lambda item: (item[0].outcome, likeness(item[1])))
    return tuple(
        FlakyRow(mark=same.first[0].mark, label=same.label, said=figures.message(same.first[1]))
        for same in folds
    )
