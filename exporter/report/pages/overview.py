"""What COMPATIBILITY.md shows: a table of models and opsets for each device, and why cells differ.

In: a `Manifest`, a `RunRecord` and the findings of the gate. Out: an `Overview` of plain rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exporter.gate import GateFinding
from exporter.manifest import Manifest
from exporter.records.record import Route, RunRecord, Status
from exporter.report.rows.acceptance import AcceptanceHistory
from exporter.report.rows.cells import (
    Cell,
    collect_cells,
    describe_reason,
    group_cells,
)
from exporter.report.rows.failure_clusters import (
    Cluster,
    FindingCluster,
    cluster_cells,
    cluster_findings,
)
from exporter.report.rows.flaky_models import FlakyRow, build_flaky_rows
from exporter.report.rows.matrix import Matrix, build_matrix
from exporter.report.rows.opset_groups import fold_opsets
from exporter.report.rows.runtime_support import RuntimeSupport, build_support_rows
from exporter.report.text.status_marks import LEGEND, Mark

#: So many models are named in a row before only their number is.
_NAMED_MODELS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many cells have a mark."""

    mark: Mark
    cells: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Cells of one outcome, and why."""

    mark: Mark
    label: str
    outcome: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Cells that need a word."""

    cells: int
    rows: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Red:
    """What is red, alike failures of many models once."""

    cells: int
    clusters: tuple[Cluster, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRow:
    """An exporter, and the opsets that it made."""

    exporter: str
    capture: str
    opsets: str
    models: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All that the template needs."""

    cells: int
    models: int
    green: int
    counts: tuple[Count, ...]
    """By mark, in the order of the legend; marks without a cell are left out."""
    legend: tuple[Mark, ...]
    """The marks that the page uses."""
    matrix: Matrix
    support: tuple[RuntimeSupport, ...]
    """Where the files run."""
    red: Red
    not_run: Section
    foreseen: Section
    flaky: tuple[FlakyRow, ...]
    unproved: Section
    """Skipped and unavailable."""
    routes: tuple[RouteRow, ...]
    tools: tuple[tuple[str, str], ...]
    findings: tuple[FindingCluster, ...]


def build_overview(
    manifest: Manifest,
    run: RunRecord,
    findings: Sequence[GateFinding] | None = None,
    past: AcceptanceHistory | None = None,
) -> Overview:
    """Lays out the page."""
    by_model = collect_cells(manifest, run)
    cells = [cell for of_model in by_model.values() for cell in of_model]
    red = tuple(_with_status(cells, *(status for status in Status if status.is_red)))
    counted = Counter(cell.mark for cell in cells)
    return Overview(
        cells=len(cells),
        models=len(by_model),
        green=sum(cell.record is not None and cell.record.status.is_green for cell in cells),
        counts=tuple(Count(mark=mark, cells=counted[mark]) for mark in LEGEND if counted[mark]),
        legend=tuple(mark for mark in LEGEND if counted[mark]),
        matrix=build_matrix(manifest, by_model),
        support=tuple(
            row
            for spec in manifest.models
            for row in build_support_rows(spec, by_model[spec.id], manifest, run.tools)
        ),
        red=Red(cells=len(red), clusters=cluster_cells(red, manifest, past)),
        not_run=_section(cell for cell in cells if cell.record is None),
        foreseen=_section(_with_status(cells, Status.XFAIL)),
        flaky=build_flaky_rows(cells),
        unproved=_section(_with_status(cells, Status.SKIP, Status.UNAVAILABLE)),
        routes=_routes(cells),
        tools=tuple(sorted(run.tools.items())),
        findings=cluster_findings(findings or ()),
    )


def _with_status(cells: Iterable[Cell], *statuses: Status) -> Iterable[Cell]:
    return (cell for cell in cells if cell.record and cell.record.status in statuses)


def _section(cells: Iterable[Cell]) -> Section:
    folds = group_cells(cells)
    return Section(
        cells=sum(len(same.members) for same in folds),
        rows=tuple(
            Reason(
                mark=same.first.mark,
                label=same.label,
                outcome=same.first.outcome,
                why=same.first.foreseen or describe_reason(same),
            )
            for same in folds
        ),
    )


def _routes(cells: Iterable[Cell]) -> tuple[RouteRow, ...]:
    made: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        if cell.record and cell.record.route:
            made.setdefault(_route_key(cell.record.route), []).append(cell)
    return tuple(
        RouteRow(
            exporter=exporter,
            capture=capture,
            opsets=fold_opsets(cell.id.opset for cell in of_route),
            models=_names(list(dict.fromkeys(cell.id.model for cell in of_route))),
            why=why,
        )
        for (exporter, capture, why), of_route in sorted(made.items())
    )


def _route_key(route: Route) -> tuple[str, str, str]:
    return (route.exporter, route.capture, route.reason)


def _names(models: Sequence[str]) -> str:
    if len(models) <= _NAMED_MODELS:
        return ", ".join(models)
    return f"{len(models)} models"
