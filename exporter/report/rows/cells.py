"""Every promised cell with what is known of it.

In: a `Manifest` and a `RunRecord`. Out: the `Cell`s of each model; a promise without a record is a
cell too, and a record without a promise is none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from exporter.core.sanitize import join_lines
from exporter.manifest import Manifest
from exporter.records.baseline import format_outcome
from exporter.records.record import (
    CellId,
    Record,
    RunRecord,
    Status,
)
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
        """How it looks in a table."""
        return choose_mark(self.record)

    @property
    def is_pass(self) -> bool:
        """Whether every promise was proved; a failure that was foreseen is no pass."""
        return self.record is not None and self.record.status is Status.PASS

    @property
    def is_red(self) -> bool:
        """Whether somebody must act."""
        return self.record is not None and self.record.status.is_red

    @property
    def outcome(self) -> str:
        """`pass`, `error at convert`, `fail at parity (axes)`, `not run`."""
        if self.record is None:
            return self.mark.word
        return format_outcome(self.record.status, self.record.stage, self.record.check)

    @property
    def why(self) -> str:
        """One line: what the record says; never empty, for a red row must say something."""
        if self.record is None:
            return self.mark.meaning
        said = figures.clean_message(self.record.message) or self.mark.meaning
        expectation = join_lines(self.record.expectation)
        return f"{said} ({expectation})" if expectation else said

    @property
    def foreseen(self) -> str:
        """The reason of the expectation that this failure met."""
        return join_lines(self.record.foreseen) if self.record else ""


def collect_cells(manifest: Manifest, run: RunRecord) -> dict[str, tuple[Cell, ...]]:
    """The cells of each model, opset by opset; models in the order of the manifest."""
    records = {
        (record.cell.model, record.cell.opset, record.cell.device): record for record in run.records
    }
    return {
        spec.id: tuple(
            Cell(
                id=CellId(model=spec.id, opset=opset, device=device),
                record=records.get((spec.id, opset, device)),
            )
            for opset in sorted(set(spec.opsets))
            for device in dict.fromkeys(spec.devices)
        )
        for spec in manifest.models
    }


def find_lowest_opset(cells: Iterable[Cell]) -> str:
    """The lowest opset that passes and above which every promised one does.

    Args:
        cells: Of one model on one device. A foreseen failure is green, and does not work.
    """
    lowest = ""
    for cell in sorted(cells, key=lambda cell: cell.id.opset, reverse=True):
        if cell.record is None or cell.record.status not in (Status.PASS, Status.XPASS):
            break
        lowest = str(cell.id.opset)
    return lowest


def group_cells(
    cells: Iterable[Cell], also: Callable[[Cell], Hashable] = lambda _: None
) -> tuple[OpsetGroup[Cell], ...]:
    """Cells with the same outcome for the same reason, but for their opset.

    Args:
        cells: Of any models.
        also: What else has to be the same.
    """
    return group_by_opset(
        cells,
        lambda cell: cell.id,
        lambda cell: (cell.outcome, mask_numbers(cell.why), cell.foreseen, also(cell)),
    )


def describe_reason(same: OpsetGroup[Cell]) -> str:
    """Why these cells are as they are; says whose figures it shows where theirs differ."""
    said = same.first.why
    if all(cell.why == said for cell in same.members):
        return said
    return f"{said} (figures of opset {same.first.id.opset})"
