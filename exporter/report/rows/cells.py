"""Promised cells with their records."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from exporter.core.text import join_lines
from exporter.manifest import Manifest
from exporter.records.baseline import format_outcome
from exporter.records.record import CellId, Record, RunRecord, Status
from exporter.report.rows.opset_groups import OpsetGroup, group_by_opset, mask_numbers
from exporter.report.text import number_format as figures
from exporter.report.text.status_marks import Mark, choose_mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A promised cell."""

    id: CellId
    record: Record | None

    @property
    def mark(self) -> Mark:
        """The mark in a table."""
        return choose_mark(self.record)

    @property
    def is_pass(self) -> bool:
        """Whether all promises are proved; a foreseen failure is no pass."""
        return self.record is not None and self.record.status is Status.PASS

    @property
    def is_red(self) -> bool:
        """Whether the user must act."""
        return self.record is not None and self.record.status.is_red

    @property
    def outcome(self) -> str:
        """`pass`, `error at convert`, `fail at parity (axes)`, `not run`."""
        if self.record is None:
            return self.mark.word
        return format_outcome(self.record.status, self.record.stage, self.record.failed_checks)

    @property
    def reason(self) -> str:
        """The message of the record on one line; never empty, because red rows need a text."""
        if self.record is None:
            return self.mark.meaning
        message = figures.clean_message(self.record.message) or self.mark.meaning
        expectation = join_lines(self.record.expectation)
        return f"{message} ({expectation})" if expectation else message

    @property
    def expected_reason(self) -> str:
        """The reason of the expectation that foresees this failure."""
        return join_lines(self.record.foreseen) if self.record else ""


def collect_cells(manifest: Manifest, run: RunRecord) -> dict[str, tuple[Cell, ...]]:
    """Return the cells of each model by opset; models in the order of the manifest."""
    records = run.by_cell()
    return {
        spec.id: tuple(
            Cell(id=cell, record=records.get(cell))
            for opset in sorted(set(spec.opsets))
            for device in dict.fromkeys(spec.devices)
            for cell in (CellId(model=spec.id, opset=opset, device=device),)
        )
        for spec in manifest.models
    }


def find_lowest_opset(cells: Iterable[Cell]) -> str:
    """Return the lowest opset from which on all cells of one model and device pass.

    Returns:
        "" if the highest opset does not pass. A foreseen failure is green but does not pass.
    """
    lowest = ""
    for cell in sorted(cells, key=lambda cell: cell.id.opset, reverse=True):
        if cell.record is None or cell.record.status not in (Status.PASS, Status.XPASS):
            break
        lowest = str(cell.id.opset)
    return lowest


def group_cells(
    cells: Iterable[Cell], key_of: Callable[[Cell], Hashable] = lambda _: None
) -> tuple[OpsetGroup[Cell], ...]:
    """Group cells that differ only in their opset: same outcome, same reason, same key."""
    return group_by_opset(
        cells,
        lambda cell: cell.id,
        lambda cell: (
            cell.outcome,
            mask_numbers(cell.reason),
            cell.expected_reason,
            key_of(cell),
        ),
    )


def describe_reason(group: OpsetGroup[Cell]) -> str:
    """Return the reason of the group; if its figures differ, name the opset of the first cell."""
    reason = group.first.reason
    if all(cell.reason == reason for cell in group.members):
        return reason
    return f"{reason} (figures of opset {group.first.id.opset})"
