"""The tables of models by opset, with the devices of equal results in one row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from exporter.manifest import Manifest
from exporter.manifest.syntax.opsets import format_opsets
from exporter.report.rows.acceptance import AcceptanceHistory
from exporter.report.rows.cells import Cell, find_lowest_opset
from exporter.report.text.status_marks import Mark

#: The largest number of opsets with a column each, and of rows in one part.
WIDE = 17
LONG = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsetRun:
    """Consecutive promised opsets with the same mark."""

    opsets: str
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """One model on the devices where it has equal results."""

    model: str
    devices: tuple[str, ...]
    marks: tuple[Mark | None, ...]
    """By opset of the part; None if the model does not promise it."""
    opset_runs: tuple[OpsetRun, ...]
    lowest_opset: str
    """The lowest opset from which on all pass; empty if the highest does not pass."""
    is_changed: bool = False
    """Whether the baseline has other outcomes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixPart:
    """One table: models by opsets."""

    heading: str
    """`manifests/vision.toml`; empty if there is one part."""
    anchor: str
    """The anchor of the heading on GitHub."""
    opsets: tuple[int, ...]
    rows: tuple[ModelRow, ...]

    @property
    def is_wide(self) -> bool:
        """Whether the table has too many opsets for columns."""
        return len(self.opsets) > WIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow:
    """A line of the index."""

    name: str
    anchor: str
    models: int
    cells: int
    green: int
    red: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """All tables of the overview."""

    devices: tuple[str, ...]
    parts: tuple[MatrixPart, ...]
    index: tuple[IndexRow, ...]
    """Empty if there is one part."""

    @property
    def has_gaps(self) -> bool:
        """Whether a field of a table is empty."""
        narrow = (part for part in self.parts if not part.is_wide)
        return any(None in row.marks for part in narrow for row in part.rows)


def build_matrix(
    manifest: Manifest,
    by_model: Mapping[str, Sequence[Cell]],
    history: AcceptanceHistory | None = None,
) -> Matrix:
    """Return the tables of the overview: models with red cells first, then changed ones.

    Args:
        manifest: The promises.
        by_model: The cells of each model.
        history: The accepted outcomes; if None, no model counts as changed.
    """
    changed = {
        model
        for model, cells in by_model.items()
        if history and any(history.is_changed(cell) for cell in cells)
    }
    red = {model for model, cells in by_model.items() if any(cell.is_red for cell in cells)}
    devices = dict.fromkeys(cell.id.device for cells in by_model.values() for cell in cells)
    anchors: Counter[str] = Counter()
    parts = tuple(
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
            _divide_models(manifest, by_model).items(),
            key=lambda item: (red.isdisjoint(item[1]), changed.isdisjoint(item[1])),
        )
    )
    index = tuple(_build_index_row(part, by_model) for part in parts) if len(parts) > 1 else ()
    return Matrix(devices=tuple(devices), parts=parts, index=index)


def find_opset_runs(cells: Iterable[Cell]) -> tuple[OpsetRun, ...]:
    """Return the cells of a model on one device as runs of equal marks."""
    return list_opset_runs((cell.id.opset, cell.mark) for cell in cells)


def list_opset_runs(marks: Iterable[tuple[int, Mark]]) -> tuple[OpsetRun, ...]:
    """Return opsets with their marks as runs of equal marks."""
    ordered = sorted(marks, key=lambda pair: pair[0])
    return tuple(
        OpsetRun(opsets=format_opsets(opset for opset, _ in run), mark=mark)
        for mark, run in groupby(ordered, key=lambda pair: pair[1])
    )


def _divide_models(
    manifest: Manifest, by_model: Mapping[str, Sequence[Cell]]
) -> dict[str, list[str]]:
    """Return the models of each part: by file, or by first letter if there is only one file."""
    models = manifest.models
    if sum(len(_group_devices(by_model[spec.id])) for spec in models) <= LONG:
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
    opsets = tuple(sorted({cell.id.opset for cells in by_model.values() for cell in cells}))
    rows = []
    for model, cells in by_model.items():
        for devices, group in _group_devices(cells).items():
            marks = {cell.id.opset: cell.mark for cell in group}
            row = ModelRow(
                model=model,
                devices=devices,
                marks=tuple(marks.get(opset) for opset in opsets),
                opset_runs=find_opset_runs(group),
                lowest_opset=find_lowest_opset(group),
                is_changed=model in changed,
            )
            rows.append(row)
    anchor = _create_anchor(name, anchors)
    return MatrixPart(heading=name, anchor=anchor, opsets=opsets, rows=tuple(rows))


def _group_devices(cells: Iterable[Cell]) -> dict[tuple[str, ...], list[Cell]]:
    """Return the cells of one of the devices with equal results, by the names of these devices."""
    by_device: dict[str, list[Cell]] = {}
    for cell in cells:
        by_device.setdefault(cell.id.device, []).append(cell)
    groups: dict[tuple[tuple[int, Mark], ...], list[str]] = {}
    for device, each in by_device.items():
        groups.setdefault(tuple((cell.id.opset, cell.mark) for cell in each), []).append(device)
    return {tuple(devices): by_device[devices[0]] for devices in groups.values()}


def _create_anchor(heading: str, anchors: Counter[str]) -> str:
    """Return the anchor that GitHub gives a heading; repeated headings have a number."""
    plain = " ".join(heading.split()).lower()
    slug = re.sub(r"[^\w -]", "", plain).replace(" ", "-")
    anchors[slug] += 1
    return slug if anchors[slug] == 1 else f"{slug}-{anchors[slug] - 1}"


def _build_index_row(part: MatrixPart, by_model: Mapping[str, Sequence[Cell]]) -> IndexRow:
    models = dict.fromkeys(row.model for row in part.rows)
    records = [cell.record for model in models for cell in by_model[model]]
    return IndexRow(
        name=part.heading,
        anchor=part.anchor,
        models=len(models),
        cells=len(records),
        green=sum(record is not None and record.status.is_green for record in records),
        red=sum(record is not None and record.status.is_red for record in records),
    )
