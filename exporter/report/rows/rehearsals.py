"""Kept rehearsals as columns beside the current results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.core.text import join_lines
from exporter.records.record import CellId
from exporter.records.rehearsal import Rehearsal, RehearsedCell, hash_inputs
from exporter.report.rows.cells import Cell
from exporter.report.rows.matrix import OpsetRun, list_opset_runs
from exporter.report.text.status_marks import MARKS, NOT_RUN, Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalColumn:
    """One kept rehearsal."""

    name: str
    tools: str
    """The versions that differ from the current ones: `torch 2.14.1`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalRow:
    """One model on one device."""

    model: str
    device: str
    current: tuple[OpsetRun, ...]
    rehearsed: tuple[tuple[OpsetRun, ...], ...]
    """By column; empty if the model was not rehearsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalTable:
    """All kept rehearsals."""

    columns: tuple[RehearsalColumn, ...]
    rows: tuple[RehearsalRow, ...]


def build_rehearsal_table(
    by_model: Mapping[str, Sequence[Cell]],
    tools: Mapping[str, str],
    rehearsals: Mapping[str, Rehearsal],
) -> RehearsalTable:
    """Return the table; it has no rows if no promised cell was rehearsed."""
    outcomes = [each.by_cell() for each in rehearsals.values()]
    rows = []
    for model, cells in by_model.items():
        for device in dict.fromkeys(cell.id.device for cell in cells):
            members = [cell for cell in cells if cell.id.device == device]
            rehearsed = tuple(_list_runs(members, each) for each in outcomes)
            if any(rehearsed):
                current = list_opset_runs((cell.id.opset, cell.mark) for cell in members)
                rows.append(
                    RehearsalRow(model=model, device=device, current=current, rehearsed=rehearsed)
                )
    return RehearsalTable(
        columns=tuple(
            RehearsalColumn(name=name, tools=_format_tools(each.tools, tools))
            for name, each in rehearsals.items()
        ),
        rows=tuple(rows),
    )


def _list_runs(
    cells: Iterable[Cell], outcomes: Mapping[CellId, RehearsedCell]
) -> tuple[OpsetRun, ...]:
    return list_opset_runs(
        (cell.id.opset, _choose_mark(cell, outcomes[cell.id]))
        for cell in cells
        if cell.id in outcomes
    )


def _choose_mark(cell: Cell, rehearsed: RehearsedCell) -> Mark:
    """Return the mark of the outcome, or of a missing one if the model changed since."""
    is_same = cell.record is not None and hash_inputs(cell.record) == rehearsed.inputs
    return MARKS[rehearsed.outcome.status] if is_same else NOT_RUN


def _format_tools(rehearsed: Mapping[str, str], current: Mapping[str, str]) -> str:
    names = (name for name, version in rehearsed.items() if current.get(name) != version)
    return join_lines(", ".join(f"{name} {rehearsed[name]}" for name in sorted(names)))
