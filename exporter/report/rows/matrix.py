"""The tables of models and opsets: one for each device, and one for all where there are several.

In: every model's `Cell`s and the manifest. Out: a `Matrix`. More opsets than a page has room for
are written as ranges (`13-17`), and many models are parted, with an index of the parts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from exporter.manifest import Manifest
from exporter.report.rows.cells import Cell, find_lowest_opset
from exporter.report.rows.opset_groups import fold_opsets
from exporter.report.text.status_marks import Mark

#: A table of more opsets has no column for each, and one of more models is parted.
WIDE = 13
LONG = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsetRun:
    """Opsets with the same mark, which follow each other among those that are promised."""

    opsets: str
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """One model on one device."""

    model: str
    marks: tuple[Mark | None, ...]
    """None where it does not promise the opset."""
    find_opset_runs: tuple[OpsetRun, ...]
    find_lowest_opset: str
    """The lowest opset from which on all of them pass; empty where the highest does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixPart:
    """Rows that stand together."""

    heading: str
    """`cpu: manifests/vision.toml`; empty where there is one part."""
    anchor: str
    """Of the heading, as GitHub makes it."""
    rows: tuple[ModelRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixTable:
    """Models by opsets on one device."""

    device: str
    opsets: tuple[int, ...]
    parts: tuple[MatrixPart, ...]

    @property
    def is_wide(self) -> bool:
        """Whether there are too many opsets for a column each."""
        return len(self.opsets) > WIDE

    @property
    def rows(self) -> tuple[ModelRow, ...]:
        """Those of all parts."""
        return tuple(row for part in self.parts for row in part.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """One model on all devices."""

    model: str
    find_opset_runs: tuple[tuple[OpsetRun, ...], ...]
    """For each device; empty where the model does not promise it."""


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
    """All of them."""

    devices: tuple[str, ...]
    tables: tuple[MatrixTable, ...]
    across: tuple[DeviceRow, ...]
    """Empty where there is one device."""
    index: tuple[IndexRow, ...]
    """Empty where no table is parted."""

    @property
    def has_gaps(self) -> bool:
        """Whether a place of a table is empty."""
        narrow = (table for table in self.tables if not table.is_wide)
        gaps = any(None in row.marks for table in narrow for row in table.rows)
        return gaps or any(() in row.stretches for row in self.across)


def build_matrix(manifest: Manifest, by_model: Mapping[str, Sequence[Cell]]) -> Matrix:
    """Lays out the tables."""
    devices = tuple(dict.fromkeys(cell.id.device for cells in by_model.values() for cell in cells))
    groups = _groups(manifest)
    anchors: Counter[str] = Counter()
    tables = tuple(_table(device, by_model, groups, anchors) for device in devices)
    across = tuple(
        DeviceRow(
            model=model,
            stretches=tuple(find_opset_runs(_on(device, cells)) for device in devices),
        )
        for model, cells in by_model.items()
    )
    return Matrix(
        devices=devices,
        tables=tables,
        across=across if len(devices) > 1 else (),
        index=tuple(_entries(groups, by_model, tables)) if len(groups) > 1 else (),
    )


def find_opset_runs(cells: Iterable[Cell]) -> tuple[OpsetRun, ...]:
    """The cells of a model on one device, neighbours with the same mark together."""
    ordered = sorted(cells, key=lambda cell: cell.id.opset)
    return tuple(
        OpsetRun(opsets=fold_opsets(cell.id.opset for cell in alike), mark=mark)
        for mark, alike in groupby(ordered, key=lambda cell: cell.mark)
    )


def _groups(manifest: Manifest) -> dict[str, list[str]]:
    """Models by part: by file where there are several, else by first letter; few are one part."""
    models = manifest.models
    if len(models) <= LONG:
        return {"": [spec.id for spec in models]}
    files = {spec.manifest for spec in models}
    groups: dict[str, list[str]] = {}
    for spec in models:
        groups.setdefault(spec.manifest if len(files) > 1 else spec.id[:1], []).append(spec.id)
    return groups if len(files) > 1 else {name: groups[name] for name in sorted(groups)}


def _table(
    device: str,
    by_model: Mapping[str, Sequence[Cell]],
    groups: Mapping[str, Sequence[str]],
    anchors: Counter[str],
) -> MatrixTable:
    here = {model: _on(device, cells) for model, cells in by_model.items()}
    opsets = tuple(sorted({cell.id.opset for cells in here.values() for cell in cells}))
    parts = []
    for name, models in groups.items():
        rows = tuple(_row(model, here[model], opsets) for model in models if here[model])
        if rows:
            heading = f"{device}: {name}" if len(groups) > 1 else ""
            parts.append(MatrixPart(heading=heading, anchor=_anchor(heading, anchors), rows=rows))
    return MatrixTable(device=device, opsets=opsets, parts=tuple(parts))


def _on(device: str, cells: Iterable[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.id.device == device]


def _row(model: str, cells: Sequence[Cell], opsets: Iterable[int]) -> ModelRow:
    marks = {cell.id.opset: cell.mark for cell in cells}
    return ModelRow(
        model=model,
        marks=tuple(marks.get(opset) for opset in opsets),
        stretches=find_opset_runs(cells),
        works_from=find_lowest_opset(cells),
    )


def _anchor(heading: str, anchors: Counter[str]) -> str:
    """What GitHub makes of a heading; the second of the same gets a number."""
    plain = " ".join(heading.split()).lower()
    slug = re.sub(r"[^\w -]", "", plain).replace(" ", "-")
    anchors[slug] += 1
    return slug if anchors[slug] == 1 else f"{slug}-{anchors[slug] - 1}"


def _entries(
    groups: Mapping[str, Sequence[str]],
    by_model: Mapping[str, Sequence[Cell]],
    tables: Iterable[MatrixTable],
) -> Iterator[IndexRow]:
    links: dict[str, list[tuple[str, str]]] = {}
    for table in tables:
        for part in table.parts:
            links.setdefault(part.heading.removeprefix(f"{table.device}: "), []).append(
                (table.device, part.anchor)
            )
    for name, models in groups.items():
        records = [cell.record for model in models for cell in by_model[model]]
        yield IndexRow(
            name=name,
            models=len(models),
            cells=len(records),
            green=sum(record is not None and record.status.is_green for record in records),
            red=sum(record is not None and record.status.is_red for record in records),
            links=tuple(links.get(name, ())),
        )
