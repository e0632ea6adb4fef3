"""The table of all models as a picture, for a README: `reports/matrix.svg`.

In: every model's `Cell`s. Out: SVG that needs nothing from elsewhere: a grid for each device, a
letter beside each colour, for not everybody tells colours apart, and a legend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.etree.ElementTree import Element

from exporter.core.sanitize import truncate
from exporter.report.rows.cells import Cell
from exporter.report.text import xml_elements as elements
from exporter.report.text.status_marks import LEGEND, Mark

#: Pixels: of a cell, between rows, of a letter in the column of names.
_CELL, _ROW, _LETTER = 22, 20, 7
_MARGIN = 10
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


def matrix_svg(by_model: Mapping[str, Sequence[Cell]], comment: str) -> str:
    """The picture.

    Args:
        by_model: The cells of each model.
        comment: Stands before the picture.
    """
    grids = tuple(_grids(by_model))
    cells = [cell for of_model in by_model.values() for cell in of_model]
    found = {cell.mark for cell in cells}
    used = [mark for mark in LEGEND if mark in found]
    names = max((len(_name(model)) for model in by_model), default=0) * _LETTER + 2 * _MARGIN
    columns = max((len(grid.opsets) for grid in grids), default=0)
    legend = [f"{mark.word}: {mark.meaning}" for mark in used]
    longest = max((len(line) for line in legend), default=0) * _LETTER + _CELL
    width = max(names + columns * _CELL, longest + _MARGIN) + _MARGIN
    height = sum(grid.height for grid in grids) + _ROW * (len(used) + 1)
    green = sum(cell.record is not None and cell.record.status.is_green for cell in cells)
    said = f"{green} of {len(cells)} cells are green"
    size = {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
    about = {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria-label": said}
    tree = elements.root("svg", about | size)
    elements.add(tree, "title", {}, said)
    elements.add(tree, "style", {}, _STYLE)
    top = 0
    for grid in grids:
        _draw(tree, grid, names, top)
        top += grid.height
    for number, (mark, line) in enumerate(zip(used, legend, strict=True), 1):
        _box(tree, (_MARGIN, top + _ROW * (number - 1) + 6), 1, mark)
        place = {"x": str(_MARGIN + _CELL + 6), "y": str(top + _ROW * number)}
        elements.add(tree, "text", place, line)
    return elements.to_text(tree, comment)


def _grids(by_model: Mapping[str, Sequence[Cell]]) -> Iterator[_Grid]:
    devices = dict.fromkeys(cell.id.device for cells in by_model.values() for cell in cells)
    for device in devices:
        marks = {
            model: {cell.id.opset: cell.mark for cell in cells if cell.id.device == device}
            for model, cells in by_model.items()
        }
        rows = tuple((model, of_model) for model, of_model in marks.items() if of_model)
        opsets = tuple(sorted({opset for _, of_model in rows for opset in of_model}))
        yield _Grid(device=device, opsets=opsets, rows=rows)


def _draw(tree: Element, grid: _Grid, left: int, top: int) -> None:
    elements.add(tree, "text", {"x": str(_MARGIN), "y": str(top + _ROW)}, _name(grid.device))
    for column, opset in enumerate(grid.opsets):
        place = {"class": "opset", "x": str(_middle(left, column, 1)), "y": str(top + _ROW)}
        elements.add(tree, "text", place, str(opset))
    for number, (model, marks) in enumerate(grid.rows, 1):
        y = top + _ROW * number
        elements.add(tree, "text", {"x": str(_MARGIN), "y": str(y + _ROW)}, _name(model))
        for first, length, mark in _runs(marks.get(opset) for opset in grid.opsets):
            _box(tree, (left + first * _CELL, y + 6), length, mark)


def _runs(marks: Iterable[Mark | None]) -> Iterator[tuple[int, int, Mark]]:
    """Neighbours with the same mark: the first, how many, and the mark."""
    for mark, alike in groupby(enumerate(marks), key=lambda item: item[1]):
        run = [index for index, _ in alike]
        if mark is not None:
            yield run[0], len(run), mark


def _box(tree: Element, corner: tuple[int, int], length: int, mark: Mark) -> None:
    x, y = corner
    box = {
        "x": str(x + 1),
        "y": str(y),
        "width": str(length * _CELL - 2),
        "height": str(_ROW - 2),
        "rx": "3",
        "fill": mark.fill,
    }
    elements.add(tree, "rect", box)
    place = {"class": "on", "x": str(_middle(x, 0, length)), "y": str(y + _ROW - 6)}
    elements.add(tree, "text", place, mark.letter)


def _middle(left: int, column: int, length: int) -> int:
    return left + column * _CELL + length * _CELL // 2


def _name(text: str) -> str:
    return truncate(elements.clean(" ".join(text.split())), _LONGEST)
