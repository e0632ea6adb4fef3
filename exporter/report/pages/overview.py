"""The page COMPATIBILITY.md: a table for each device, and the reasons of failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.core.device_name import DeviceName
from exporter.gate import GateFinding
from exporter.manifest import Manifest
from exporter.manifest.syntax.versions import format_opsets
from exporter.records.record import RunRecord, Status
from exporter.report.formats import LEGEND, Mark
from exporter.report.rows.cells import (
    AcceptanceHistory,
    Cell,
    Row,
    collect_cells,
    describe_reason,
    format_head,
    group_cells,
)
from exporter.report.rows.failure_clusters import (
    FindingCluster,
    cluster_cells,
    cluster_findings,
)
from exporter.report.rows.failures import build_flaky_rows
from exporter.report.rows.matrix import MatrixPart, build_matrix
from exporter.report.rows.runtime_support import (
    build_support_rows,
    build_tool_table,
    summarize_support,
)

#: The largest number of models that a row lists by name.
_NAMED_MODELS = 4
#: The largest number of labels of cells in one row; further labels are counted.
_LISTED_LABELS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The values for the template."""

    problems: tuple[str, ...]
    """The problems of manifest files that belong to no cell."""
    head: str
    """The head figure: models, red cells, proofs and foreseen failures."""
    cells: int
    models: int
    green: int
    legend: tuple[Mark, ...]
    """The marks on the page."""
    runtimes: Mapping[str, str]
    """By device: `ONNX Runtime 1.17.3, opsets up to 20`; empty if it is unknown."""
    matrix: tuple[MatrixPart, ...]
    support: tuple[tuple[str, str, str], ...]
    """Of each model: its name, the releases of ONNX Runtime that load it, its dynamic axes."""
    red: Row
    not_run: Row
    expected: Row
    """Foreseen failures."""
    flaky: tuple[Row, ...]
    unproved: Row
    """Skipped and unavailable cells."""
    routes: tuple[Row, ...]
    tools: Row
    findings: tuple[FindingCluster, ...]


def build_overview(
    manifest: Manifest,
    run: RunRecord,
    findings: Sequence[GateFinding] | None = None,
    history: AcceptanceHistory | None = None,
) -> Overview:
    """Return the values for the page."""
    by_model = collect_cells(manifest, run)
    cells = [cell for each in by_model.values() for cell in each]
    red = [cell for cell in cells if cell.is_red]
    used = {cell.mark for cell in cells}
    return Overview(
        problems=tuple(str(problem) for problem in manifest.problems),
        head=format_head(cells),
        cells=len(cells),
        models=len(by_model),
        green=sum(cell.record is not None and cell.record.status.is_green for cell in cells),
        legend=tuple(mark for mark in LEGEND if mark in used),
        runtimes=_describe_runtimes(manifest, by_model, run.tools),
        matrix=build_matrix(manifest, by_model, history),
        support=tuple(
            row
            for spec in manifest.models
            for row in [summarize_support(spec, by_model[spec.id])]
            if row[1]
        ),
        red={"cells": len(red), "clusters": cluster_cells(red, manifest, history)},
        not_run=_build_section(cells, None),
        expected=_build_section(cells, Status.XFAIL),
        flaky=build_flaky_rows(cells),
        unproved=_build_section(cells, Status.SKIP, Status.UNAVAILABLE),
        routes=_list_routes(cells),
        tools=build_tool_table(run),
        findings=cluster_findings(findings or ()),
    )


def _describe_runtimes(
    manifest: Manifest, by_model: Mapping[str, Sequence[Cell]], tools: Mapping[str, str]
) -> dict[str, str]:
    versions: dict[str, list[str]] = {}
    for spec in manifest.models:
        for row in build_support_rows(spec, by_model[spec.id], manifest, tools):
            for device in row.devices:
                versions.setdefault(device, []).append(row.proved_with)
    last_opsets = {each.name: each.last_opset for each in manifest.project.devices}
    texts = {}
    for device, names in versions.items():
        last = last_opsets.get(DeviceName(device).base)
        limit = [f"opsets up to {last}"] if last else []
        texts[device] = ", ".join([*dict.fromkeys(filter(None, names)), *limit])
    return texts


def _build_section(cells: Sequence[Cell], *statuses: Status | None) -> Row:
    """Return one row for each outcome and reason, for all models and devices together.

    A status is None for a cell without a result.
    """
    selected = [c for c in cells if (c.record.status if c.record else None) in statuses]
    rows: dict[tuple[Mark, str, str], list[Cell]] = {}
    for group in group_cells(selected):
        reason = group.first.expected_reason or describe_reason(group)
        rows.setdefault((group.first.mark, group.first.outcome, reason), []).extend(group.members)
    loadable: dict[tuple[str, int], set[str]] = {}
    for cell in cells:
        if not cell.is_beyond_runtime:
            loadable.setdefault((cell.id.model, cell.id.opset), set()).add(cell.id.device)
    return {
        "cells": len(selected),
        "rows": tuple(
            {
                "mark": mark,
                "outcome": outcome,
                "reason": reason,
                "labels": labels[:_LISTED_LABELS],
                "more": max(0, len(labels) - _LISTED_LABELS),
            }
            for (mark, outcome, reason), members in rows.items()
            for labels in (_label_cells(members, loadable),)
        ),
    }


def _label_cells(
    cells: Sequence[Cell], loadable: Mapping[tuple[str, int], set[str]]
) -> tuple[str, ...]:
    """Return the labels of cells, with the devices only if they are not all of the model.

    `loadable` are the devices of each model and opset whose runtime can load the file.
    """
    if all(cell.is_beyond_runtime for cell in cells):
        devices = ",".join(dict.fromkeys(cell.id.device for cell in cells))
        return (f"*/{format_opsets(c.id.opset for c in cells).replace(', ', ',')}/{devices}",)
    by_opset: dict[tuple[str, int], list[str]] = {}
    for cell in cells:
        by_opset.setdefault((cell.id.model, cell.id.opset), []).append(cell.id.device)
    #: The model, its opsets, its devices with the outcome, and those with another one.
    groups: list[tuple[str, list[int], dict[str, None], set[str]]] = []
    for (model, opset), affected in by_opset.items():
        others = loadable[model, opset].difference(affected)
        for group in groups:  # a device that cannot load the opset contradicts no group
            if group[0] == model and others.isdisjoint(group[2]) and group[3].isdisjoint(affected):
                break
        else:
            group = (model, [], {}, set())
            groups.append(group)
        group[1].append(opset)
        group[2].update(dict.fromkeys(affected))
        group[3].update(others)
    return tuple(
        f"{model}/{format_opsets(opsets).replace(', ', ',')}{'/' * bool(others)}"
        f"{','.join(names) if others else ''}"
        for model, opsets, names, others in groups
    )


def _list_routes(cells: Iterable[Cell]) -> tuple[Row, ...]:
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
            {
                "exporter": exporter,
                "capture": capture,
                "opsets": format_opsets(cell.id.opset for cell in group),
                "models": ", ".join(models) if is_short else f"{len(models)} models",
                "reason": reason,
            }
        )
    return tuple(rows)
