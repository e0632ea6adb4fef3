"""The page COMPATIBILITY.md: a table for each device, and the reasons of failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.gate import GateFinding
from exporter.manifest import Manifest
from exporter.manifest.syntax.opsets import format_opsets
from exporter.records.record import CellId, RunRecord, Status
from exporter.records.rehearsal import Rehearsal
from exporter.report.rows.acceptance import AcceptanceHistory
from exporter.report.rows.cells import Cell, collect_cells, describe_reason, group_cells
from exporter.report.rows.failure_clusters import (
    AffectedCells,
    Cluster,
    FindingCluster,
    cluster_cells,
    cluster_findings,
    count_cells,
)
from exporter.report.rows.failures import FlakyRow, build_flaky_rows
from exporter.report.rows.matrix import Matrix, build_matrix
from exporter.report.rows.rehearsals import RehearsalTable, build_rehearsal_table
from exporter.report.rows.runtime_support import (
    SupportSummary,
    build_support_rows,
    summarize_support,
)
from exporter.report.rows.tool_versions import ToolTable, build_tool_table
from exporter.report.text.status_marks import LEGEND, Mark

#: The largest number of models that a row lists by name.
_NAMED_MODELS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkCount:
    """The number of cells with a mark."""

    mark: Mark
    cells: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonRow:
    """Cells with the same outcome and reason."""

    mark: Mark
    outcome: str
    reason: str
    affected: AffectedCells


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A list of cells with their reasons."""

    cells: int
    rows: tuple[ReasonRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedCells:
    """The red cells, with equal failures of many models in one cluster."""

    cells: int
    clusters: tuple[Cluster, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRow:
    """A route with its opsets and models."""

    exporter: str
    capture: str
    opsets: str
    models: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The values for the template."""

    problems: tuple[str, ...]
    """The problems of manifest files that belong to no cell."""
    cells: int
    models: int
    green: int
    counts: tuple[MarkCount, ...]
    """In the order of the legend, without marks that have no cell."""
    legend: tuple[Mark, ...]
    """The marks on the page."""
    matrix: Matrix
    rehearsals: RehearsalTable
    support: tuple[SupportSummary, ...]
    red: RedCells
    not_run: Section
    expected: Section
    """Foreseen failures."""
    flaky: tuple[FlakyRow, ...]
    unproved: Section
    """Skipped and unavailable cells."""
    routes: tuple[RouteRow, ...]
    tools: ToolTable
    findings: tuple[FindingCluster, ...]


def build_overview(
    manifest: Manifest,
    run: RunRecord,
    findings: Sequence[GateFinding] | None = None,
    history: AcceptanceHistory | None = None,
    rehearsals: Mapping[str, Rehearsal] | None = None,
) -> Overview:
    """Return the values for the page."""
    by_model = collect_cells(manifest, run)
    cells = [cell for each in by_model.values() for cell in each]
    red = [cell for cell in cells if cell.is_red]
    counts = Counter(cell.mark for cell in cells)
    return Overview(
        problems=tuple(str(problem) for problem in manifest.problems),
        cells=len(cells),
        models=len(by_model),
        green=sum(cell.record is not None and cell.record.status.is_green for cell in cells),
        counts=tuple(MarkCount(mark=mark, cells=counts[mark]) for mark in LEGEND if counts[mark]),
        legend=tuple(mark for mark in LEGEND if counts[mark]),
        matrix=build_matrix(manifest, by_model, history),
        rehearsals=build_rehearsal_table(by_model, run.tools, rehearsals or {}),
        support=tuple(
            summarize_support(
                spec,
                by_model[spec.id],
                build_support_rows(spec, by_model[spec.id], manifest, run.tools),
            )
            for spec in manifest.models
        ),
        red=RedCells(cells=len(red), clusters=cluster_cells(red, manifest, history)),
        not_run=_build_section(cell for cell in cells if cell.record is None),
        expected=_build_section(_select_status(cells, Status.XFAIL)),
        flaky=build_flaky_rows(cells),
        unproved=_build_section(_select_status(cells, Status.SKIP, Status.UNAVAILABLE)),
        routes=_list_routes(cells),
        tools=build_tool_table(run),
        findings=cluster_findings(findings or ()),
    )


def _select_status(cells: Iterable[Cell], *statuses: Status) -> Iterable[Cell]:
    return (cell for cell in cells if cell.record and cell.record.status in statuses)


def _build_section(cells: Iterable[Cell]) -> Section:
    """Return one row for each outcome and reason, for all models and devices together."""
    rows: dict[tuple[Mark, str, str], list[CellId]] = {}
    for group in group_cells(cells):
        reason = group.first.expected_reason or describe_reason(group)
        members = rows.setdefault((group.first.mark, group.first.outcome, reason), [])
        members += [cell.id for cell in group.members]
    return Section(
        cells=sum(map(len, rows.values())),
        rows=tuple(
            ReasonRow(mark=mark, outcome=outcome, reason=reason, affected=count_cells(members))
            for (mark, outcome, reason), members in rows.items()
        ),
    )


def _list_routes(cells: Iterable[Cell]) -> tuple[RouteRow, ...]:
    by_route: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        if cell.record and (route := cell.record.route):
            key = (route.exporter, route.capture, route.reason)
            by_route.setdefault(key, []).append(cell)
    rows = []
    for (exporter, capture, reason), group in sorted(by_route.items(), key=lambda item: item[0]):
        models = list(dict.fromkeys(cell.id.model for cell in group))
        is_short = len(models) <= _NAMED_MODELS
        rows.append(
            RouteRow(
                exporter=exporter,
                capture=capture,
                opsets=format_opsets(cell.id.opset for cell in group),
                models=", ".join(models) if is_short else f"{len(models)} models",
                reason=reason,
            )
        )
    return tuple(rows)
