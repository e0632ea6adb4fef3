"""Clusters of red cells with equal failures."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from exporter.manifest import Manifest, ModelSpec
from exporter.records.record import CellId
from exporter.report.rows.cells import (
    AS_ACCEPTED,
    AcceptanceHistory,
    Cell,
    Row,
    format_export_command,
    group_by_opset,
)
from exporter.report.rows.failures import (
    find_model_lines,
    format_repro_command,
    list_locations,
    mask_names,
)

#: The number of labels of cells in one row; further labels are counted.
_LISTED_LABELS = 12
_MODEL = "MODEL"
_EXPORTERS = {
    "dynamo": "dynamo",
    "torchscript": "TorchScript",
    "transformers": "transformers",
    "file": "the finished file",
    "chain": "the chain",
}


#: One failure of one cell: the key of its cluster, the cell, the operator and the reason.
_Failure = tuple[Hashable, Cell, str, str]


def cluster_cells(
    cells: Iterable[Cell], manifest: Manifest, history: AcceptanceHistory | None = None
) -> tuple[Row, ...]:
    """Return clusters of red cells, those with new failures first, then the largest.

    A cell with two missing operators is in two clusters.
    """
    command = manifest.project.command
    history = history or AcceptanceHistory()
    names = {spec.id: _collect_names(spec) for spec in manifest.models}
    groups: dict[Hashable, list[_Failure]] = {}
    for cell in cells:
        for failure in _list_failures(cell, names[cell.id.model]):
            groups.setdefault(failure[0], []).append(failure)
    clusters: list[Row] = []
    for group in groups.values():
        _, first, operator, reason = group[0]
        is_same = all(other == reason for *_, other in group)
        ids = tuple(cell.id for _, cell, _, _ in group)
        accepted = (history.find_outcome(cell) for _, cell, _, _ in group)
        record = first.record
        outcomes = tuple(dict.fromkeys(filter(None, accepted)))
        clusters.append(
            {
                "mark": first.mark,
                "outcome": first.outcome,
                # The missing operator, or the first one that differs; empty if it is unknown.
                "operator": operator,
                "reason": reason if is_same else f"{reason} (text of {first.id})",
                "affected": _count_cells(ids),
                "locations": list_locations(ids, manifest),
                # In the baseline; empty without one.
                "accepted": outcomes,
                "is_new": any(outcome != AS_ACCEPTED for outcome in outcomes),
                "cell": str(first.id),
                "model": first.id.model,
                "members": ids,
                # Of the first cell, which represents the others.
                "lines": find_model_lines(record) if record else (),
                "export_command": format_export_command(str(first.id), command),
                "repro_command": format_repro_command(record, manifest.project) if record else "",
            }
        )
    return tuple(
        sorted(clusters, key=lambda each: (not each["is_new"], -each["affected"]["cells"]))
    )


def _list_failures(cell: Cell, names: Mapping[str, str]) -> Iterator[_Failure]:
    record = cell.record
    if record and record.missing:
        exporter = _EXPORTERS[record.route.exporter] if record.route else "the exporter"
        for operator in dict.fromkeys(item.operator for item in record.missing):
            reason = f"{exporter} has no translation of {operator} at this opset"
            key: Hashable = (cell.outcome, operator, exporter)
            yield key, cell, operator, reason
        return
    blame = record.blame if record else None
    operator = blame.first.operator if blame and blame.first else ""
    culprit = blame.culprit if blame else None
    key = (cell.outcome, operator, culprit, mask_names(cell.reason, names))
    yield key, cell, operator, cell.reason


def _count_cells(cells: Sequence[CellId]) -> Row:
    """Return the cells of a cluster, grouped by opset: `alexnet/13..17/cpu`."""
    groups = group_by_opset(cells, lambda cell: cell, lambda _: None)
    labels = tuple(group.label for group in groups)
    return {
        "cells": len(cells),
        "models": len({cell.model for cell in cells}),
        "labels": labels[:_LISTED_LABELS],
        "more": max(0, len(labels) - _LISTED_LABELS),
    }


def _collect_names(spec: ModelSpec) -> Mapping[str, str]:
    """Return the names of a contract, with their replacements.

    Only quoted occurrences of input and axis names are replaced, because they can be short words.
    """
    file, _, attribute = spec.source.partition(":")
    quoted = [item.name for item in (*spec.inputs, *spec.outputs)]
    quoted += [axis.name for axis in spec.axes]
    names = {f"'{name}'": "NAME" for name in quoted}
    names |= {name: "SOURCE" for name in (spec.source, file, file.rpartition("/")[2]) if name}
    names[spec.id] = _MODEL
    if attribute:
        names[attribute] = "SOURCE"
    return names
