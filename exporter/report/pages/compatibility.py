"""The page `COMPATIBILITY.md`: all models in one table, and what is red, foreseen or not proved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from exporter.core.device_name import DeviceName
from exporter.manifest import Manifest
from exporter.manifest.syntax.values import format_opsets
from exporter.records.record import RunRecord, Status
from exporter.report.formats import INITIAL, LEGEND, Mark
from exporter.report.rows import artifacts, failures, matrix, variants
from exporter.report.rows.cells import (
    AcceptanceHistory,
    Cell,
    Row,
    collect_cells,
    describe_reason,
    format_head,
    group_cells,
    list_initial_models,
)
from exporter.report.rows.failure_clusters import cluster_cells

#: The largest number of models that a row lists by name.
_NAMED_MODELS = 4
#: The largest number of labels of cells in one row; further labels are counted.
_LISTED_LABELS = 12


def build_overview(
    manifest: Manifest,
    run: RunRecord,
    history: AcceptanceHistory | None = None,
    by_model: Mapping[str, Sequence[Cell]] | None = None,
) -> Row:
    """Return the values for the page; docs/api.md describes them."""
    by_model = collect_cells(manifest, run) if by_model is None else by_model
    cells = [cell for each in by_model.values() for cell in each]
    red = [cell for cell in cells if cell.is_red]
    used = {cell.mark for cell in cells}
    tables = matrix.build_matrix(manifest, by_model, history)
    by_id = {spec.id: spec for spec in manifest.models}
    specs = [by_id[row["model"]] for part in tables for row in part["rows"]]
    support = [matrix.summarize_support(spec, by_model[spec.id]) for spec in specs]
    clusters = cluster_cells(red, manifest, history) if red else ()
    return {
        "project": manifest.project.name,
        "problems": tuple(str(problem) for problem in manifest.problems),
        "head": format_head(cells),
        "cells": len(cells),
        "models": len(by_model),
        "green": sum(cell.record is not None and cell.record.status.is_green for cell in cells),
        "legend": tuple(mark for mark in LEGEND if mark in used),
        "initial": {
            "mark": INITIAL,
            "models": list_initial_models(cell.record for cell in cells),
        },
        "runtimes": _describe_runtimes(manifest, by_model, run.tools),
        "matrix": tables,
        "support": tuple(row for row in support if row[1]),
        "variants": variants.build_rows(manifest.models, by_model),
        "metrics": artifacts.build_metric_rows(by_model),
        "red": {"cells": len(red), "clusters": clusters},
        "not_run": _build_section(cells, None),
        "expected": _build_section(cells, Status.XFAIL),
        "flaky": failures.build_flaky_rows(cells),
        "unproved": _build_section(cells, Status.SKIP, Status.UNAVAILABLE),
        "routes": _list_routes(cells),
        "tools": matrix.build_tool_table(run),
    }


def _describe_runtimes(
    manifest: Manifest, by_model: Mapping[str, Sequence[Cell]], tools: Mapping[str, str]
) -> dict[str, str]:
    versions: dict[str, list[str]] = {}
    for spec in manifest.models:
        for row in matrix.build_support_rows(spec, by_model[spec.id], manifest, tools):
            for device in row["devices"]:
                versions.setdefault(device, []).append(row["proved_with"])
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
    if not selected:
        return {"cells": 0, "rows": ()}
    rows: dict[tuple[Mark, str, str], list[Cell]] = {}
    for group in group_cells(selected):
        reason = group.first.expected_reason or describe_reason(group)
        rows.setdefault((group.first.mark, group.first.outcome, reason), []).extend(group.members)
    loadable: dict[tuple[str, int], set[str]] = {}
    for cell in cells:
        if not cell.is_beyond_runtime:
            loadable.setdefault((cell.id.model, cell.id.opset), set()).add(cell.id.device)
    described: list[Row] = []
    for (mark, outcome, reason), members in rows.items():
        labels = _label_cells(members, loadable)
        described.append(
            {
                "mark": mark,
                "outcome": outcome,
                "reason": reason,
                "labels": labels[:_LISTED_LABELS],
                "more": max(0, len(labels) - _LISTED_LABELS),
            }
        )
    return {"cells": len(selected), "rows": tuple(described)}


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
    for (model_id, opset), affected in by_opset.items():
        others = loadable[model_id, opset].difference(affected)
        for group in groups:  # a device that cannot load the opset fits each group
            if (
                group[0] == model_id
                and others.isdisjoint(group[2])
                and group[3].isdisjoint(affected)
            ):
                break
        else:
            group = (model_id, [], {}, set())
            groups.append(group)
        group[1].append(opset)
        group[2].update(dict.fromkeys(affected))
        group[3].update(others)
    return tuple(
        f"{model_id}/{format_opsets(opsets).replace(', ', ',')}{'/' * bool(others)}"
        f"{','.join(names) if others else ''}"
        for model_id, opsets, names, others in groups
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
