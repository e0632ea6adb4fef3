"""What a model's page shows: its contract, its cells, what each check said, and what was shipped.

In: a `ModelSpec` and its `Cell`s. Out: a `ModelPage` of plain rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exporter.manifest import ModelSpec, Project
from exporter.records.audit import Audit
from exporter.records.record import TRACER
from exporter.report.rows.acceptance import AcceptanceHistory
from exporter.report.rows.artifacts import (
    FileRow,
    Note,
    OperatorCounts,
    RuntimeRow,
    files,
    notes,
    operators,
    runtimes,
)
from exporter.report.rows.audits import AuditRow, audit_rows
from exporter.report.rows.cells import Cell, works_from
from exporter.report.rows.check_table import CheckTable, check_table
from exporter.report.rows.contract import Contract, contract
from exporter.report.rows.failures import FailureRow, failure_rows, rerun
from exporter.report.rows.flaky_models import FlakyRow, flaky_rows
from exporter.report.rows.matrix import WIDE, OpsetRun, stretches
from exporter.report.rows.opset_ranges import fold_opsets
from exporter.report.rows.runtime_support import Support
from exporter.report.text.status_marks import LEGEND, Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow:
    """The model on one device."""

    device: str
    marks: tuple[Mark | None, ...]
    """None where the model does not promise the opset on this device."""
    stretches: tuple[OpsetRun, ...]
    works_from: str
    """The lowest opset from which on all of them pass; empty where the highest does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPage:
    """All that the template needs."""

    spec: ModelSpec
    contract: Contract
    opsets: tuple[int, ...]
    matrix: tuple[MatrixRow, ...]
    support: tuple[Support, ...]
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
    files: tuple[FileRow, ...]
    runtimes: tuple[RuntimeRow, ...]
    """The releases of ONNX Runtime that load them."""
    operators: OperatorCounts
    notes: tuple[Note, ...]
    rerun: str
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
        return sum(note.text.startswith(TRACER) for note in self.notes)


def model_page(
    spec: ModelSpec,
    cells: Sequence[Cell],
    project: Project,
    past: AcceptanceHistory,
    audits: Sequence[Audit] = (),
    support: Sequence[Support] = (),
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
    tables = tuple(check_table(device, of_device) for device, of_device in _by_device(cells))
    used = {cell.mark for cell in cells}.union(*(table.marks for table in tables))
    return ModelPage(
        spec=spec,
        contract=contract(spec),
        opsets=opsets,
        matrix=tuple(_matrix_row(*of_device, opsets) for of_device in _by_device(cells)),
        support=tuple(support),
        legend=tuple(mark for mark in LEGEND if mark in used),
        thorough=fold_opsets(
            cell.id.opset for cell in cells if cell.record and cell.record.thorough
        ),
        checks=tuple(table for table in tables if table.rows),
        audits=audit_rows(audits, (cell.id for cell in cells)),
        flaky=flaky_rows(cells),
        failures=failure_rows(cells, project, past),
        files=files(cells),
        runtimes=runtimes(cells),
        operators=operators(cells),
        notes=notes(cells),
        rerun=rerun(f"{spec.id}/*", project.command),
    )


def _by_device(cells: Sequence[Cell]) -> Iterable[tuple[str, list[Cell]]]:
    for device in dict.fromkeys(cell.id.device for cell in cells):
        yield device, [cell for cell in cells if cell.id.device == device]


def _matrix_row(device: str, cells: Sequence[Cell], opsets: Iterable[int]) -> MatrixRow:
    marks = {cell.id.opset: cell.mark for cell in cells}
    return MatrixRow(
        device=device,
        marks=tuple(marks.get(opset) for opset in opsets),
        stretches=stretches(cells),
        works_from=works_from(cells),
    )
