"""The cells that do not pass, and all that a person needs to mend them.

In: a model's `Cell`s. Out: `Trouble`s; neighbouring opsets with the same one share it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from exporter.record import Record, Status
from exporter.report import figures
from exporter.report.cells import Cell, fold_cells, why_of
from exporter.report.fold import Fold
from exporter.report.reasons import Reasons, reasons_of
from exporter.report.symbols import MARKS, Mark

#: Lines of a detail that go on the page; its end says most.
_DETAIL_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A check that said no."""

    check: str
    mark: Mark
    message: str
    figures: str
    """With the digits that somebody needs who must act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Cells that do not pass for the same reason; the first speaks for all."""

    label: str
    """`dcgan/9-13/cpu`."""
    cell: str
    """The one that the rest is about: `dcgan/9/cpu`."""
    mark: Mark
    outcome: str
    why: str
    foreseen: str
    reasons: Reasons
    refusals: tuple[Refusal, ...]
    detail: str
    log: str
    """Relative to the project's root; empty where there is none."""
    rerun: str
    """A shell command."""


def troubles(cells: Sequence[Cell], build: str) -> tuple[Trouble, ...]:
    """The red cells first, then those that were foreseen to fail, or not run.

    Args:
        cells: The model's cells.
        build: The build folder, relative to the project's root; logs lie in it.
    """
    folds = fold_cells(cell for cell in cells if cell.mark is not MARKS[Status.PASS])
    red_first = sorted(folds, key=lambda same: not _is_red(same.first))
    return tuple(_trouble(same, build) for same in red_first)


def rerun(pattern: str) -> str:
    """The shell command that runs the cells of a pattern again."""
    quoted = shlex.quote(pattern) if "'" in pattern else f"'{pattern}'"
    return f"nox -s export -- {quoted}"


def _is_red(cell: Cell) -> bool:
    return cell.record is not None and cell.record.status.is_red


def _trouble(same: Fold[Cell], build: str) -> Trouble:
    cell = same.first
    record = cell.record
    return Trouble(
        label=same.label,
        cell=str(cell.id),
        mark=cell.mark,
        outcome=cell.outcome,
        why=why_of(same),
        foreseen=cell.foreseen,
        reasons=reasons_of(record) if record else Reasons(),
        refusals=_refusals(record) if record else (),
        detail=tail(figures.detail(record.detail)) if record else "",
        log=f"{build}/{record.log}" if record and record.log else "",
        rerun=rerun(str(cell.id)),
    )


def _refusals(record: Record) -> tuple[Refusal, ...]:
    return tuple(
        Refusal(
            check=result.check,
            mark=MARKS[result.status],
            message=figures.message(result.message),
            figures=", ".join(
                f"{name} {figures.two_digits(value)}" for name, value in result.metrics.items()
            ),
        )
        for result in record.checks
        if result.status is not Status.PASS
    )


def tail(text: str) -> str:
    """The last lines of a detail."""
    return "\n".join(text.rstrip().splitlines()[-_DETAIL_LINES:])
