"""Tables of models by opset: one for each device, and one for all devices.

Input: the `Cell`s of all models and the manifest. Output: a `Matrix`. If a table has too many
opsets for columns, it has ranges (`13..17`). If it has too many models, it is divided into parts
with an index.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from exporter.manifest import Manifest
from exporter.manifest.syntax.opsets import format_opsets
from exporter.report.rows.cells import Cell, find_lowest_opset
from exporter.report.text.status_marks import Mark

#: The largest number of opsets with a column each, and of models in one part.
WIDE = 13
LONG = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsetRun:
    """Consecutive promised opsets with the same mark."""

    opsets: str
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """One model on one device."""

    model: str
    marks: tuple[Mark | None, ...]
    """By opset of the table; None if the model does not promise it."""
    opset_runs: tuple[OpsetRun, ...]
    lowest_opset: str
    """The lowest opset from which on all pass; empty if the highest does not pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixPart:
    """One part of a table."""

    heading: str
    """`cpu: manifests/vision.toml`; empty if the table has one part."""
    anchor: str
    """The anchor of the heading on GitHub."""
    rows: tuple[ModelRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixTable:
    """Models by opsets on one device."""

    device: str
    opsets: tuple[int, ...]
    parts: tuple[MatrixPart, ...]

    @property
    def is_wide(self) -> bool:
        """Whether the table has too many opsets for columns."""
        return len(self.opsets) > WIDE

    @property
    def rows(self) -> tuple[ModelRow, ...]:
        """The rows of all parts."""
        return tuple(row for part in self.parts for row in part.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """One model on all devices."""

    model: str
    opset_runs: tuple[tuple[OpsetRun, ...], ...]
    """By device; empty if the model does not promise it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow:
    """A line of the index."""

    name: str
    models: int
    cells: int
    green: int
    red: int
    links: tuple[tuple[str, str], ...]
    """Device and anchor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """All tables of the overview."""

    devices: tuple[str, ...]
    tables: tuple[MatrixTable, ...]
    across: tuple[DeviceRow, ...]
    """Empty if there is one device."""
    index: tuple[IndexRow, ...]
    """Empty if each table has one part."""

    @property
    def has_gaps(self) -> bool:
        """Whether a field of a table is empty."""
        narrow = (table for table in self.tables if not table.is_wide)
        gaps = any(None in row.marks for table in narrow for row in table.rows)
        return gaps or any(() in row.opset_runs for row in self.across)


def build_matrix(manifest: Manifest, by_model: Mapping[str, Sequence[Cell]]) -> Matrix:
    """Return the tables of the overview."""
    devices = tuple(dict.fromkeys(cell.id.device for cells in by_model.values() for cell in cells))
    parts = _divide_models(manifest)
    anchors: Counter[str] = Counter()
    tables = tuple(_build_table(device, by_model, parts, anchors) for device in devices)
    across = tuple(
        DeviceRow(
            model=model,
            opset_runs=tuple(find_opset_runs(_select_device(device, cells)) for device in devices),
        )
        for model, cells in by_model.items()
    )
    return Matrix(
        devices=devices,
        tables=tables,
        across=across if len(devices) > 1 else (),
        index=tuple(_list_index(parts, by_model, tables)) if len(parts) > 1 else (),
    )


def find_opset_runs(cells: Iterable[Cell]) -> tuple[OpsetRun, ...]:
    """Return the cells of a model on one device as runs of equal marks."""
    ordered = sorted(cells, key=lambda cell: cell.id.opset)
    return tuple(
        OpsetRun(opsets=format_opsets(cell.id.opset for cell in run), mark=mark)
        for mark, run in groupby(ordered, key=lambda cell: cell.mark)
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


def _build_table(
    device: str,
    by_model: Mapping[str, Sequence[Cell]],
    models_by_part: Mapping[str, Sequence[str]],
    anchors: Counter[str],
) -> MatrixTable:
    cells = {model: _select_device(device, each) for model, each in by_model.items()}
    opsets = tuple(sorted({cell.id.opset for each in cells.values() for cell in each}))
    parts = []
    for name, models in models_by_part.items():
        rows = tuple(_build_row(model, cells[model], opsets) for model in models if cells[model])
        if rows:
            heading = f"{device}: {name}" if len(models_by_part) > 1 else ""
            anchor = _create_anchor(heading, anchors)
            parts.append(MatrixPart(heading=heading, anchor=anchor, rows=rows))
    return MatrixTable(device=device, opsets=opsets, parts=tuple(parts))


def _select_device(device: str, cells: Iterable[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.id.device == device]


def _build_row(model: str, cells: Sequence[Cell], opsets: Iterable[int]) -> ModelRow:
    marks = {cell.id.opset: cell.mark for cell in cells}
    return ModelRow(
        model=model,
        marks=tuple(marks.get(opset) for opset in opsets),
        opset_runs=find_opset_runs(cells),
        lowest_opset=find_lowest_opset(cells),
    )


def _create_anchor(heading: str, anchors: Counter[str]) -> str:
    """Return the anchor that GitHub gives a heading; repeated headings have a number."""
    plain = " ".join(heading.split()).lower()
    slug = re.sub(r"[^\w -]", "", plain).replace(" ", "-")
    anchors[slug] += 1
    return slug if anchors[slug] == 1 else f"{slug}-{anchors[slug] - 1}"


def _list_index(
    models_by_part: Mapping[str, Sequence[str]],
    by_model: Mapping[str, Sequence[Cell]],
    tables: Iterable[MatrixTable],
) -> Iterator[IndexRow]:
    links: dict[str, list[tuple[str, str]]] = {}
    for table in tables:
        for part in table.parts:
            name = part.heading.removeprefix(f"{table.device}: ")
            links.setdefault(name, []).append((table.device, part.anchor))
    for name, models in models_by_part.items():
        records = [cell.record for model in models for cell in by_model[model]]
        yield IndexRow(
            name=name,
            models=len(models),
            cells=len(records),
            green=sum(record is not None and record.status.is_green for record in records),
            red=sum(record is not None and record.status.is_red for record in records),
            links=tuple(links.get(name, ())),
        )
