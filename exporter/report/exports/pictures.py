"""Pictures for a README: the badges, with their JSON for shields.io, and the table of models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal
from unicodedata import east_asian_width

from exporter.core.text import join_lines, truncate
from exporter.manifest.syntax.opsets import format_opsets
from exporter.report.formats import LEGEND
from exporter.report.pages.templates import render_html
from exporter.report.rows.cells import Cell, format_head

#: Color names of shields.io, and the fills of our own picture; white text is readable on each.
_FILLS = {
    "brightgreen": "#2a7d3c",
    "yellowgreen": "#6b7a00",
    "red": "#c0392b",
    "lightgrey": "#5f6b7a",
}
#: Characters of a badge, and of a name in the table.
_LONGEST, _LONGEST_NAME = 100, 40
#: Pixels of a badge: a letter at font size 11, a wide letter, the padding on each side.
_LETTER, _WIDE, _PADDING = 6.5, 12.0, 6
#: Pixels of the table: a row, the head, the gap between devices; the table has at most 400.
_ROW, _HEAD, _GAP = 15, 40, 14
#: Rows, and pixels of all opsets together.
_MOST_ROWS, _OPSETS_WIDTH = 22, 620

Color = Literal["brightgreen", "yellowgreen", "red", "lightgrey"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """The content of a badge."""

    label: str
    message: str
    color: Color


def create_project_badge(cells: Sequence[Cell]) -> Badge:
    """Return the badge of the project, with its head figure."""
    return _create_badge("ONNX exports", cells, format_head(cells))


def create_model_badge(model: str, cells: Sequence[Cell]) -> Badge:
    """Return the badge of a model, with the opsets at which all devices pass."""
    cells = [cell for cell in cells if not cell.is_beyond_runtime]
    failing = {cell.id.opset for cell in cells if not cell.is_pass}
    opsets = {cell.id.opset for cell in cells} - failing
    noun = "opset" if len(opsets) == 1 else "opsets"
    message = f"{noun} {format_opsets(opsets)}" if opsets else "nothing proved"
    if red := sum(cell.is_red for cell in cells):
        message = f"{red} of {len(cells)} red"
    elif not_run := sum(cell.record is None for cell in cells):
        message = f"{not_run} of {len(cells)} not run"
    return _create_badge(model, cells, message)


def _create_badge(label: str, cells: Sequence[Cell], message: str) -> Badge:
    passing = sum(cell.is_pass for cell in cells)
    color: Color = "lightgrey"
    if any(cell.is_red for cell in cells):
        color = "red"
    elif passing and all(cell.record for cell in cells):
        color = "brightgreen" if passing == len(cells) else "yellowgreen"
    label, message = (truncate(join_lines(text), _LONGEST) for text in (label, message))
    return Badge(label=label, message=message, color=color)


def format_badge_json(badge: Badge) -> str:
    """Return the JSON for shields.io: https://shields.io/badges/endpoint-badge."""
    fields = {
        "schemaVersion": 1,
        "label": badge.label,
        "message": badge.message,
        "color": badge.color,
    }
    return json.dumps(fields, indent=2) + "\n"


def draw_badge(badge: Badge, comment: str) -> str:
    """Return the badge as SVG without external resources, after a comment."""
    left, right = (
        round(sum(_WIDE if east_asian_width(each) in "WF" else _LETTER for each in text))
        + 2 * _PADDING
        for text in (badge.label, badge.message)
    )
    fill = _FILLS[badge.color]
    values = {"label": badge.label, "message": badge.message, "fill": fill}
    return comment + render_html("badge.svg", None, left=left, right=right, **values)


def draw_matrix(by_model: Mapping[str, Sequence[Cell]], comment: str) -> str:
    """Return the picture of the largest models, after a comment."""
    cells = [cell for each in by_model.values() for cell in each]
    models = sorted(by_model, key=lambda model: -_count_parameters(by_model[model]))
    shown = models if len(models) <= _MOST_ROWS else models[: _MOST_ROWS - 1]
    names = [truncate(join_lines(model), _LONGEST_NAME) for model in shown]
    if more := len(models) - len(shown):
        names.append(f"and {more} more")
    left = round(max((len(name) for name in names), default=0) * _LETTER + 2 * _GAP)
    texts: list[tuple[str, int, int, str]] = [
        (name, _GAP, _HEAD + _ROW * row + 11, "") for row, name in enumerate(names)
    ]
    boxes: list[tuple[int, int, int, int, str, str]] = []
    grids = {
        device: sorted({cell.id.opset for cell in cells if cell.id.device == device})
        for device in dict.fromkeys(cell.id.device for cell in cells)
    }
    step = max(3, min(22, _OPSETS_WIDTH // max(1, sum(map(len, grids.values())))))
    for device, opsets in grids.items():
        width = max(step * len(opsets), round(min(len(device), 12) * _LETTER), 5 * _GAP // 2)
        texts.append((truncate(join_lines(device), max(3, int(width / _LETTER))), left, 16, ""))
        ends = f"{opsets[0]}" if len(opsets) == 1 else f"{opsets[0]}..{opsets[-1]}"
        texts.append((ends, left, 31, "soft"))
        for row, model in enumerate(shown):
            marks = {c.id.opset: c.mark for c in by_model[model] if c.id.device == device}
            slots = ((marks.get(opset), column) for column, opset in enumerate(opsets))
            for mark, group in groupby(slots, key=lambda slot: slot[0]):
                columns = [column for _, column in group]
                size = step * len(columns) - 1
                letter = mark.letter if mark and size >= 8 else ""
                x, y = left + step * columns[0], _HEAD + _ROW * row
                if mark:
                    boxes.append((x, y, size, _ROW - 2, mark.fill, letter))
        left += width + _GAP
    x, y = _GAP, _HEAD + _ROW * len(names) + 8
    for mark in LEGEND:
        if any(cell.mark is mark for cell in cells):
            boxes.append((x, y, _ROW, _ROW - 2, mark.fill, mark.letter))
            texts.append((mark.word, x + _ROW + 5, y + 11, ""))
            x += round(_ROW + len(mark.word) * _LETTER) + 2 * _GAP
    return comment + render_html(
        "matrix.svg",
        None,
        title=format_head(cells),
        width=max(left, x),
        height=y + _ROW + 6,
        texts=texts,
        boxes=boxes,
    )


def _count_parameters(cells: Sequence[Cell]) -> int:
    artifacts = (cell.record.artifact for cell in cells if cell.record)
    return max((artifact.parameters for artifact in artifacts if artifact), default=0)
