"""The badge of a project: `badge.svg`."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.core.text import pluralize
from exporter.report.pages.templates import render_html
from exporter.report.rows.cells import Cell

BADGE = "badge.svg"
#: The first line of each picture.
SVG_MARK = "<!-- Written by `exporter report` from the results -->\n"
_LABEL = "ONNX exports"
#: White text is readable on each.
_GREEN, _RED, _GREY = "#2a7d3c", "#c0392b", "#5f6b7a"
#: Pixels: a letter at font size 11, and the padding on each side.
_LETTER, _PADDING = 6.5, 6


def draw_badge(cells: Sequence[Cell]) -> str:
    """Return the badge as SVG without external resources.

    A model is proved if a cell passes and no cell is red.
    """
    models = {cell.id.model for cell in cells}
    red = {cell.id.model for cell in cells if cell.is_red}
    proved = {cell.id.model for cell in cells if cell.is_pass} - red
    message = f"{pluralize(len(proved), 'model')} proved"
    fill = _GREEN if proved else _GREY
    if red:
        message, fill = f"{len(red)} of {pluralize(len(models), 'model')} red", _RED
    elif not_run := sum(cell.record is None for cell in cells):
        message, fill = f"{message}, {pluralize(not_run, 'cell')} not run", _GREY
    left, right = (round(len(text) * _LETTER) + 2 * _PADDING for text in (_LABEL, message))
    values = {"label": _LABEL, "message": message, "fill": fill}
    return SVG_MARK + render_html("badge.svg", None, left=left, right=right, **values)
