"""The table of all models: a row for each model, a column for each device, ranges of opsets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from exporter.manifest import Manifest
from exporter.manifest.syntax.versions import format_opsets
from exporter.report.formats import LEGEND, Mark
from exporter.report.rows.cells import AcceptanceHistory, Cell, Row, format_head

#: The largest number of opsets with a column each on a page, and of models in one part.
WIDE = 17
LONG = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixPart:
    """One table: models by devices."""

    heading: str
    """`manifests/vision.toml`; empty if there is one part."""
    anchor: str
    """The anchor of the heading on GitHub."""
    head: str
    """The head figure of its cells."""
    devices: tuple[str, ...]
    rows: tuple[Row, ...]


def build_matrix(
    manifest: Manifest,
    by_model: Mapping[str, Sequence[Cell]],
    history: AcceptanceHistory | None = None,
) -> tuple[MatrixPart, ...]:
    """Return the tables of the overview: models with red cells first, then changed ones.

    Without a history, no model counts as changed.
    """
    changed = {
        model
        for model, cells in by_model.items()
        if history and any(history.is_changed(cell) for cell in cells)
    }
    red = {model for model, cells in by_model.items() if any(cell.is_red for cell in cells)}
    anchors: Counter[str] = Counter()
    return tuple(
        _build_part(
            name,
            {
                model: by_model[model]
                for model in sorted(models, key=lambda each: (each not in red, each not in changed))
            },
            anchors,
            changed,
        )
        for name, models in sorted(
            _divide_models(manifest).items(),
            key=lambda item: (red.isdisjoint(item[1]), changed.isdisjoint(item[1])),
        )
    )


def find_opset_runs(cells: Iterable[Cell]) -> tuple[Row, ...]:
    """Return the cells of a model on one device as runs of equal marks."""
    return list_opset_runs((cell.id.opset, cell.mark) for cell in cells)


def list_opset_runs(marks: Iterable[tuple[int, Mark]]) -> tuple[Row, ...]:
    """Return opsets with their marks as runs of equal marks."""
    ordered = sorted(marks, key=lambda pair: pair[0])
    return tuple(
        {"opsets": format_opsets(opset for opset, _ in run), "mark": mark}
        for mark, run in groupby(ordered, key=lambda pair: pair[1])
    )


def group_by_mark(cells: Collection[Cell]) -> tuple[Row, ...]:
    """Return the opsets of each mark, for one model on one device.

    Opsets that the runtime of the device cannot load are a property of the device. They are listed
    only if the device has no other ones.
    """
    loadable = [cell for cell in cells if not cell.is_beyond_runtime] or cells
    runs = {mark: [each.id.opset for each in loadable if each.mark is mark] for mark in LEGEND}
    return tuple(
        {"opsets": format_opsets(opsets), "mark": mark} for mark, opsets in runs.items() if opsets
    )


def _divide_models(manifest: Manifest) -> dict[str, list[str]]:
    """Return the models of each part: by file, or by first letter if there is only one file."""
    models = manifest.models
    if len(models) <= LONG:
        return {"": [spec.id for spec in models]}
    files = {spec.manifest for spec in models}
    parts: dict[str, list[str]] = {}
    for spec in models:
        parts.setdefault(spec.manifest if len(files) > 1 else spec.id[:1], []).append(spec.id)
    return parts if len(files) > 1 else {name: parts[name] for name in sorted(parts)}


def _build_part(
    name: str,
    by_model: Mapping[str, Sequence[Cell]],
    anchors: Counter[str],
    changed: Collection[str],
) -> MatrixPart:
    every = [cell for cells in by_model.values() for cell in cells]
    devices = tuple(dict.fromkeys(cell.id.device for cell in every))
    rows = (
        {
            "model": model,
            "cells": tuple(
                group_by_mark([cell for cell in cells if cell.id.device == device])
                for device in devices
            ),
            "is_changed": model in changed,
        }
        for model, cells in by_model.items()
    )
    return MatrixPart(
        heading=name,
        anchor=_create_anchor(name, anchors),
        head=format_head(every),
        devices=devices,
        rows=tuple(rows),
    )


def _create_anchor(heading: str, anchors: Counter[str]) -> str:
    """Return the anchor that GitHub gives a heading; repeated headings have a number."""
    plain = " ".join(heading.split()).lower()
    slug = re.sub(r"[^\w -]", "", plain).replace(" ", "-")
    anchors[slug] += 1
    return slug if anchors[slug] == 1 else f"{slug}-{anchors[slug] - 1}"
