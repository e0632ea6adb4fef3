"""`reports/matrix.svg`: the table of all models as a picture for a README."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.etree.ElementTree import Element

from exporter.core.text import truncate
from exporter.report.rows.cells import Cell
from exporter.report.text import xml_elements as elements
from exporter.report.text.status_marks import LEGEND, Mark

#: Pixels: the width of a cell, the height of a row, the width of a letter, the margin.
_CELL, _ROW, _LETTER, _MARGIN = 22, 20, 7, 10
#: Characters.
_LONGEST = 48
_STYLE = (
    "text{font:12px Verdana,DejaVu Sans,sans-serif;fill:#1f2328}"
    "text.on{fill:#fff;font-weight:bold;text-anchor:middle}text.opset{text-anchor:middle}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """One device: a row of cells for each model."""

    device: str
    opsets: tuple[int, ...]
    rows: tuple[tuple[str, Mapping[int, Mark]], ...]

    @property
    def height(self) -> int:
        return _ROW * (len(self.rows) + 2)


def draw_matrix(by_model: Mapping[str, Sequence[Cell]], comment: str) -> str:
    """Return the picture, after a comment."""
    grids = tuple(_list_grids(by_model))
    cells = [cell for each in by_model.values() for cell in each]
    used = {cell.mark for cell in cells}
    legend = [(mark, f"{mark.word}: {mark.meaning}") for mark in LEGEND if mark in used]
    names = max((len(_shorten(model)) for model in by_model), default=0) * _LETTER + 2 * _MARGIN
    columns = max((len(grid.opsets) for grid in grids), default=0)
    longest = max((len(line) for _, line in legend), default=0) * _LETTER + _CELL
    width = max(names + columns * _CELL, longest + _MARGIN) + _MARGIN
    height = sum(grid.height for grid in grids) + _ROW * (len(legend) + 1)
    green = sum(cell.record is not None and cell.record.status.is_green for cell in cells)
    title = f"{green} of {len(cells)} cells are green"
    attributes = {
        "xmlns": "http://www.w3.org/2000/svg",
        "role": "img",
        "aria-label": title,
        "width": str(width),
        "height": str(height),
        "viewBox": f"0 0 {width} {height}",
    }
    tree = elements.create_root("svg", attributes)
    elements.add_element(tree, "title", {}, title)
    elements.add_element(tree, "style", {}, _STYLE)
    top = 0
    for grid in grids:
        _draw_grid(tree, grid, names, top)
        top += grid.height
    for number, (mark, line) in enumerate(legend, 1):
        _draw_box(tree, (_MARGIN, top + _ROW * (number - 1) + 6), 1, mark)
        attributes = {"x": str(_MARGIN + _CELL + 6), "y": str(top + _ROW * number)}
        elements.add_element(tree, "text", attributes, line)
    return elements.format_document(tree, comment)


def _list_grids(by_model: Mapping[str, Sequence[Cell]]) -> Iterator[_Grid]:
    devices = dict.fromkeys(cell.id.device for cells in by_model.values() for cell in cells)
    for device in devices:
        marks = {
            model: {cell.id.opset: cell.mark for cell in cells if cell.id.device == device}
            for model, cells in by_model.items()
        }
        rows = tuple((model, by_opset) for model, by_opset in marks.items() if by_opset)
        opsets = tuple(sorted({opset for _, by_opset in rows for opset in by_opset}))
        yield _Grid(device=device, opsets=opsets, rows=rows)


def _draw_grid(tree: Element, grid: _Grid, left: int, top: int) -> None:
    name = _shorten(grid.device)
    elements.add_element(tree, "text", {"x": str(_MARGIN), "y": str(top + _ROW)}, name)
    for column, opset in enumerate(grid.opsets):
        x = _find_center(left + column * _CELL, 1)
        attributes = {"class": "opset", "x": str(x), "y": str(top + _ROW)}
        elements.add_element(tree, "text", attributes, str(opset))
    for number, (model, marks) in enumerate(grid.rows, 1):
        y = top + _ROW * number
        name = _shorten(model)
        elements.add_element(tree, "text", {"x": str(_MARGIN), "y": str(y + _ROW)}, name)
        for first, length, mark in _list_runs(marks.get(opset) for opset in grid.opsets):
            _draw_box(tree, (left + first * _CELL, y + 6), length, mark)


def _list_runs(marks: Iterable[Mark | None]) -> Iterator[tuple[int, int, Mark]]:
    """Yield neighbors with the same mark: first index, length, mark."""
    for mark, group in groupby(enumerate(marks), key=lambda item: item[1]):
        indices = [index for index, _ in group]
        if mark is not None:
            yield indices[0], len(indices), mark


def _draw_box(tree: Element, corner: tuple[int, int], length: int, mark: Mark) -> None:
    x, y = corner
    box = {
        "x": str(x + 1),
        "y": str(y),
        "width": str(length * _CELL - 2),
        "height": str(_ROW - 2),
        "rx": "3",
        "fill": mark.fill,
    }
    elements.add_element(tree, "rect", box)
    attributes = {"class": "on", "x": str(_find_center(x, length)), "y": str(y + _ROW - 6)}
    elements.add_element(tree, "text", attributes, mark.letter)


def _find_center(left: int, length: int) -> int:
    return left + length * _CELL // 2


def _shorten(text: str) -> str:
    return truncate(elements.clean_text(" ".join(text.split())), _LONGEST)
