"""What a model's page shows: its contract, its cells, what each check said, and what was shipped.

In: a `ModelSpec` and its `Cell`s. Out: a `ModelPage` of plain rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exporter.manifest import ModelSpec, Project
from exporter.records.audit import Audit
from exporter.records.record import TRACER_PREFIX
from exporter.report.rows.acceptance import AcceptanceHistory
from exporter.report.rows.artifacts import (
    FileRow,
    Note,
    OperatorCounts,
    RuntimeRow,
    count_operators,
    group_files,
    group_notes,
    group_releases,
)
from exporter.report.rows.audits import AuditRow, build_audit_rows
from exporter.report.rows.cells import Cell, find_lowest_opset
from exporter.report.rows.check_table import CheckTable, build_check_table
from exporter.report.rows.contract import Contract, describe_contract
from exporter.report.rows.failures import FailureRow, build_failure_rows, format_export_command
from exporter.report.rows.flaky_models import FlakyRow, build_flaky_rows
from exporter.report.rows.matrix import WIDE, OpsetRun, find_opset_runs
from exporter.report.rows.opset_groups import fold_opsets
from exporter.report.rows.runtime_support import RuntimeSupport
from exporter.report.text.status_marks import LEGEND, Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow:
    """The model on one device."""

    device: str
    marks: tuple[Mark | None, ...]
    """None where the model does not promise the opset on this device."""
    find_opset_runs: tuple[OpsetRun, ...]
    find_lowest_opset: str
    """The lowest opset from which on all of them pass; empty where the highest does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPage:
    """All that the template needs."""

    spec: ModelSpec
    describe_contract: Contract
    opsets: tuple[int, ...]
    matrix: tuple[MatrixRow, ...]
    support: tuple[RuntimeSupport, ...]
    """Where the files run."""
    legend: tuple[Mark, ...]
    """The marks that the page uses."""
    thorough: str
    """The opsets that were looked at thoroughly, as ranges; empty where none was."""
    checks: tuple[CheckTable, ...]
    audits: tuple[AuditRow, ...]
    """What the checks saw of a file that was changed in many small ways."""
    flaky: tuple[FlakyRow, ...]
    """Those of them that pass now are no troubles, and are to be told all the same."""
    failures: tuple[FailureRow, ...]
    group_files: tuple[FileRow, ...]
    group_releases: tuple[RuntimeRow, ...]
    """The releases of ONNX Runtime that load them."""
    count_operators: OperatorCounts
    group_notes: tuple[Note, ...]
    format_export_command: str
    """The shell command that makes the page anew."""

    @property
    def is_wide(self) -> bool:
        """Whether there are too many opsets for a column each."""
        return len(self.opsets) > WIDE

    @property
    def has_gaps(self) -> bool:
        """Whether a place of the table of cells is empty."""
        return not self.is_wide and any(None in row.marks for row in self.matrix)

    @property
    def has_survivors(self) -> bool:
        """Whether a change of a file was missed by every check."""
        return any(audit.survivors for audit in self.audits)

    @property
    def tracer_warnings(self) -> int:
        """How many lines of the model the TorchScript tracer warns of."""
        return sum(note.text.startswith(TRACER_PREFIX) for note in self.notes)


def build_model_page(
    spec: ModelSpec,
    cells: Sequence[Cell],
    project: Project,
    past: AcceptanceHistory,
    audits: Sequence[Audit] = (),
    support: Sequence[RuntimeSupport] = (),
) -> ModelPage:
    """Lays out the page.

    Args:
        spec: The contract.
        cells: The model's cells, opset by opset.
        project: Knows the build folder, and how a command is spelled.
        past: What was accepted before.
        audits: The last one of each audited cell.
        support: Where the files run.
    """
    opsets = tuple(sorted({cell.id.opset for cell in cells}))
    tables = tuple(build_check_table(device, of_device) for device, of_device in _by_device(cells))
    used = {cell.mark for cell in cells}.union(*(table.marks for table in tables))
    return ModelPage(
        spec=spec,
        contract=describe_contract(spec),
        opsets=opsets,
        matrix=tuple(_matrix_row(*of_device, opsets) for of_device in _by_device(cells)),
        support=tuple(support),
        legend=tuple(mark for mark in LEGEND if mark in used),
        thorough=fold_opsets(
            cell.id.opset for cell in cells if cell.record and cell.record.thorough
        ),
        checks=tuple(table for table in tables if table.rows),
        audits=build_audit_rows(audits, (cell.id for cell in cells)),
        flaky=build_flaky_rows(cells),
        failures=build_failure_rows(cells, project, past),
        files=group_files(cells),
        runtimes=group_releases(cells),
        operators=count_operators(cells),
        notes=group_notes(cells),
        rerun=format_export_command(f"{spec.id}/*", project.command),
    )


def _by_device(cells: Sequence[Cell]) -> Iterable[tuple[str, list[Cell]]]:
    for device in dict.fromkeys(cell.id.device for cell in cells):
        yield device, [cell for cell in cells if cell.id.device == device]


def _matrix_row(device: str, cells: Sequence[Cell], opsets: Iterable[int]) -> MatrixRow:
    marks = {cell.id.opset: cell.mark for cell in cells}
    return MatrixRow(
        device=device,
        marks=tuple(marks.get(opset) for opset in opsets),
        stretches=find_opset_runs(cells),
        works_from=find_lowest_opset(cells),
    )
