"""The picture `matrix.svg`: a box for each cell of the largest models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from exporter.core.text import join_lines, truncate
from exporter.report.formats import LEGEND
from exporter.report.pages.badge import SVG_MARK
from exporter.report.pages.templates import render_html
from exporter.report.rows.cells import Cell, format_head
from exporter.report.rows.matrix import count_parameters

MATRIX = "matrix.svg"
#: Pixels of a letter, and characters of a name.
_LETTER, _LONGEST_NAME = 6.5, 40
#: Pixels: a row, the head, the gap between devices; the picture has at most 400.
_ROW, _HEAD, _GAP = 15, 40, 14
#: Rows, and pixels of all opsets together.
_MOST_ROWS, _OPSETS_WIDTH = 22, 620


def draw_matrix(by_model: Mapping[str, Sequence[Cell]]) -> str:
    """Return the picture of the largest models."""
    cells = [cell for each in by_model.values() for cell in each]
    models = sorted(by_model, key=lambda model_id: -count_parameters(by_model[model_id]))
    shown = models if len(models) <= _MOST_ROWS else models[: _MOST_ROWS - 1]
    names = [truncate(join_lines(model_id), _LONGEST_NAME) for model_id in shown]
    if more := len(models) - len(shown):
        names.append(f"and {more} more")
    left = round(max((len(name) for name in names), default=0) * _LETTER + 2 * _GAP)
    texts: list[tuple[str, int, int, str]] = [
        (name, _GAP, _HEAD + _ROW * row + 11, "") for row, name in enumerate(names)
    ]
    boxes: list[tuple[int, int, int, int, str, str]] = []
    grids = {
        device_name: sorted({cell.id.opset for cell in cells if cell.id.device == device_name})
        for device_name in dict.fromkeys(cell.id.device for cell in cells)
    }
    step = max(3, min(22, _OPSETS_WIDTH // max(1, sum(map(len, grids.values())))))
    for device_name, opsets in grids.items():
        width = max(step * len(opsets), round(min(len(device_name), 12) * _LETTER), 5 * _GAP // 2)
        texts.append(
            (truncate(join_lines(device_name), max(3, int(width / _LETTER))), left, 16, "")
        )
        ends = f"{opsets[0]}" if len(opsets) == 1 else f"{opsets[0]}..{opsets[-1]}"
        texts.append((ends, left, 31, "soft"))
        for row, model_id in enumerate(shown):
            marks = {c.id.opset: c.mark for c in by_model[model_id] if c.id.device == device_name}
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
    return SVG_MARK + render_html(
        "matrix.svg",
        None,
        title=format_head(cells),
        width=max(left, x),
        height=y + _ROW + 6,
        texts=texts,
        boxes=boxes,
    )
