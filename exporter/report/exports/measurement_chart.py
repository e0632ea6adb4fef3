"""`reports/charts/<model>.svg`: the measured ratios of a model's files over opsets and devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from exporter.core.text import truncate
from exporter.report.rows.measurement_rows import MeasurementRow, format_ratio
from exporter.report.text import xml_elements as elements

#: Pixels: the height of a row, the longest bar, the width of a letter, the margin.
_ROW, _BAR, _LETTER, _MARGIN = 20, 320, 7, 10
#: Characters.
_LONGEST = 40
_STYLE = (
    "text{font:12px Verdana,DejaVu Sans,sans-serif;fill:#1f2328}text.title{font-weight:bold}"
    "rect{fill:#0969da}line{stroke:#9a6700;stroke-dasharray:4 3}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#4493f8}line{stroke:#d29922}}"
)


@dataclass(frozen=True, slots=True)
class _Panel:
    """One measurement: its title, and the ratio of each cell by its label."""

    title: str
    ratios: Sequence[tuple[str, float]]

    @property
    def height(self) -> int:
        return _ROW * (len(self.ratios) + 2)


def draw_chart(model: str, rows: Sequence[MeasurementRow], comment: str) -> str:
    """Return the picture, after a comment."""
    panels = tuple(_list_panels(rows))
    labels = [label for panel in panels for label, _ in panel.ratios]
    left = _MARGIN + _LETTER * max((len(label) for label in labels), default=0) + _MARGIN
    width, height = left + _BAR + 10 * _LETTER, sum(panel.height for panel in panels)
    title = f"Measurements of {model}"
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
    for panel in panels:
        _draw_panel(tree, panel, left, top)
        top += panel.height
    return elements.format_document(tree, comment)


def _list_panels(rows: Sequence[MeasurementRow]) -> Iterator[_Panel]:
    for title, ratios in (
        ("Latency, as a multiple of PyTorch's", [row.values.latency for row in rows]),
        ("Load time, as a multiple of a file with one node", [row.values.load for row in rows]),
        ("Peak memory, as a multiple of the file's size", [row.values.memory for row in rows]),
    ):
        measured = [
            (truncate(f"{row.device}, opset {row.opset}", _LONGEST), value.ratio)
            for row, value in zip(rows, ratios, strict=True)
            if value
        ]
        if measured:
            yield _Panel(title, measured)


def _draw_panel(tree: Element, panel: _Panel, left: int, top: int) -> None:
    attributes = {"class": "title", "x": str(_MARGIN), "y": str(top + _ROW)}
    elements.add_element(tree, "text", attributes, panel.title)
    longest = max(1.0, *(ratio for _, ratio in panel.ratios))
    for number, (label, ratio) in enumerate(panel.ratios, 1):
        y = top + _ROW * number
        length = max(1, round(_BAR * ratio / longest))
        text = {"x": str(_MARGIN), "y": str(y + _ROW)}
        elements.add_element(tree, "text", text, label)
        bar = {"x": str(left), "y": str(y + 7), "width": str(length), "height": str(_ROW - 5)}
        elements.add_element(tree, "rect", bar)
        value = {"x": str(left + length + 5), "y": str(y + _ROW)}
        elements.add_element(tree, "text", value, format_ratio(ratio))
    x = str(left + round(_BAR / longest))  # the ratio 1
    ends = {"x1": x, "x2": x, "y1": str(top + _ROW + 4), "y2": str(top + panel.height - _ROW + 6)}
    elements.add_element(tree, "line", ends)
