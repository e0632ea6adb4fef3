"""The cells that do not pass, and all that a person needs to mend them.

In: a model's `Cell`s. Out: `FailureRow`s; neighbouring opsets with the same one share it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from exporter.core.command_names import format_command
from exporter.manifest import Project
from exporter.records.record import Record, Status
from exporter.report.rows.acceptance import AcceptanceHistory
from exporter.report.rows.cells import Cell, describe_reason, group_cells
from exporter.report.rows.failure_reasons import Reasons, explain_failure
from exporter.report.rows.opset_groups import OpsetGroup
from exporter.report.text import number_format as figures
from exporter.report.text.status_marks import MARKS, Mark

#: Lines of a detail that go on the page; its end says most.
_DETAIL_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedCheck:
    """A check that said no."""

    check: str
    mark: Mark
    message: str
    figures: str
    """With the digits that somebody needs who must act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRow:
    """Cells that do not pass for the same reason; the first speaks for all."""

    label: str
    """`dcgan/9-13/cpu`."""
    cell: str
    """The one that the rest is about: `dcgan/9/cpu`."""
    mark: Mark
    is_red: bool
    outcome: str
    why: str
    foreseen: str
    since: str
    """What was accepted before, or since when it is as it is; empty without a baseline."""
    flaky: str
    """What an earlier run said of the very same inputs."""
    reasons: Reasons
    refusals: tuple[FailedCheck, ...]
    detail: str
    log: str
    """Relative to the project's root; empty where there is none."""
    format_export_command: str
    """A shell command."""


def build_failure_rows(
    cells: Sequence[Cell], project: Project, past: AcceptanceHistory
) -> tuple[FailureRow, ...]:
    """The red cells first, then those that were foreseen to fail, or not run.

    Args:
        cells: The model's cells.
        project: Knows the build folder, in which logs lie, and how a command is spelled.
        past: What was accepted before. Cells that were accepted as others are told apart.
    """
    folds = group_cells(
        (cell for cell in cells if cell.mark is not MARKS[Status.PASS]),
        lambda cell: (past.since(cell), _flaky(cell)),
    )
    red_first = sorted(folds, key=lambda same: not same.first.is_red)
    return tuple(_trouble(same, project, past) for same in red_first)


def format_export_command(pattern: str, command: str) -> str:
    """The shell command that runs the cells of a pattern again, in the project's spelling."""
    quoted = shlex.quote(pattern) if "'" in pattern else f"'{pattern}'"
    return format_command(command, "export", quoted)


def _trouble(same: OpsetGroup[Cell], project: Project, past: AcceptanceHistory) -> FailureRow:
    cell = same.first
    record = cell.record
    return FailureRow(
        label=same.label,
        cell=str(cell.id),
        mark=cell.mark,
        is_red=cell.is_red,
        outcome=cell.outcome,
        why=describe_reason(same),
        foreseen=cell.foreseen,
        since=past.since(cell),
        flaky=_flaky(cell),
        reasons=explain_failure(record, project.command) if record else Reasons(),
        refusals=_refusals(record) if record else (),
        detail=keep_last_lines(figures.clean_detail(record.detail)) if record else "",
        log=f"{project.build}/{record.log}" if record and record.log else "",
        rerun=format_export_command(str(cell.id), project.command),
    )


def _flaky(cell: Cell) -> str:
    return figures.clean_message(cell.record.flaky) if cell.record else ""


def _refusals(record: Record) -> tuple[FailedCheck, ...]:
    said = figures.clean_message(record.message)
    return tuple(
        FailedCheck(
            check=result.check,
            mark=MARKS[result.status],
            message=figures.replace_repetition(figures.clean_message(result.message), said),
            figures=", ".join(
                f"{name} {figures.two_digits(value)}" for name, value in result.metrics.items()
            ),
        )
        for result in record.checks
        if result.status is not Status.PASS
    )


def keep_last_lines(text: str) -> str:
    """The last lines of a detail."""
    return "\n".join(text.rstrip().splitlines()[-_DETAIL_LINES:])
