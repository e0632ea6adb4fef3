"""The page of a model: contract, cells, check results and artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporter.manifest import ModelSpec, Project
from exporter.manifest.syntax.versions import format_opsets
from exporter.records.baseline import list_steps
from exporter.records.record import TRACER_PREFIX
from exporter.report.formats import LEGEND, Mark
from exporter.report.rows.artifacts import (
    CheckTable,
    FileRow,
    build_check_table,
    build_measurement_rows,
    build_timing_rows,
    count_operators,
    group_files,
    group_notes,
    group_releases,
)
from exporter.report.rows.cells import (
    AcceptanceHistory,
    Cell,
    Row,
    find_lowest_opset,
    format_export_command,
)
from exporter.report.rows.contract import Contract, describe_contract
from exporter.report.rows.failures import (
    build_failure_rows,
    build_flaky_rows,
)
from exporter.report.rows.matrix import WIDE, find_opset_runs
from exporter.report.rows.runtime_support import RuntimeSupport


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPage:
    """The values for the template."""

    spec: ModelSpec
    contract: Contract
    weights: str
    """`initial values of seed 0`; empty if weights were loaded."""
    opsets: tuple[int, ...]
    matrix: tuple[Row, ...]
    support: tuple[RuntimeSupport, ...]
    legend: tuple[Mark, ...]
    """The marks on the page."""
    thorough: str
    """The opsets with thorough checks, as ranges; empty if there are none."""
    short_proofs: Mapping[str, str]
    """The opsets with a short proof as ranges, by device."""
    checks: tuple[CheckTable, ...]
    flaky: tuple[Row, ...]
    """Includes cells that pass now and thus are not in `failures`."""
    failures: tuple[Row, ...]
    files: tuple[FileRow, ...]
    releases: tuple[Row, ...]
    """The releases of ONNX Runtime that load the files."""
    measurements: tuple[Row, ...]
    timings: tuple[Row, ...]
    """Empty unless the project requests them."""
    operators: Row
    notes: tuple[Row, ...]
    trend: tuple[tuple[str, ...], ...]
    """The newest first; empty for pages that a commit can contain."""
    export_command: str

    @property
    def is_wide(self) -> bool:
        """Whether the page has too many opsets for columns."""
        return len(self.opsets) > WIDE

    @property
    def has_gaps(self) -> bool:
        """Whether a field of the table of cells is empty."""
        return not self.is_wide and any(None in row["marks"] for row in self.matrix)

    @property
    def tracer_warnings(self) -> int:
        """The number of warnings of the TorchScript tracer."""
        return sum(note["text"].startswith(TRACER_PREFIX) for note in self.notes)


def build_model_page(
    spec: ModelSpec,
    cells: Sequence[Cell],
    project: Project,
    history: AcceptanceHistory,
    support: Sequence[RuntimeSupport] = (),
) -> ModelPage:
    """Return the values for the page."""
    opsets = tuple(sorted({cell.id.opset for cell in cells}))
    by_device: dict[str, list[Cell]] = {}
    for cell in cells:
        by_device.setdefault(cell.id.device, []).append(cell)
    tables = tuple(build_check_table(device, each) for device, each in by_device.items())
    used = {cell.mark for cell in cells}.union(*(table.marks for table in tables))
    return ModelPage(
        spec=spec,
        contract=describe_contract(spec),
        weights=next((c.record.initial_weights for c in cells if c.record and c.is_pass), ""),
        opsets=opsets,
        matrix=tuple(_build_row(device, each, opsets) for device, each in by_device.items()),
        support=tuple(support),
        legend=tuple(mark for mark in LEGEND if mark in used),
        thorough=format_opsets(
            cell.id.opset for cell in cells if cell.record and cell.record.thorough
        ),
        short_proofs={
            device: format_opsets(short)
            for device, each in by_device.items()
            if (short := [cell.id.opset for cell in each if cell.record and cell.record.proved_on])
        },
        checks=tuple(table for table in tables if table.rows),
        flaky=build_flaky_rows(cells),
        failures=build_failure_rows(cells, project, history),
        files=group_files(cells),
        releases=group_releases(cells),
        measurements=build_measurement_rows(cells),
        timings=build_timing_rows(cells) if project.timings else (),
        operators=count_operators(cells),
        notes=group_notes(cells),
        trend=list_steps(history.trend, spec.id),
        export_command=format_export_command(f"{spec.id}/*", project.command),
    )


def _build_row(device: str, cells: Sequence[Cell], opsets: Sequence[int]) -> Row:
    marks = {cell.id.opset: cell.mark for cell in cells}
    return {
        "device": device,
        "marks": tuple(marks.get(opset) for opset in opsets),
        "opset_runs": find_opset_runs(cells),
        "lowest_opset": find_lowest_opset(cells),
    }
