"""Badges for a README: a picture, and the JSON of a shields.io endpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from unicodedata import east_asian_width

from exporter.core.text import truncate
from exporter.manifest.syntax.opsets import format_opsets
from exporter.report.rows.cells import Cell
from exporter.report.text import xml_elements as elements

#: Color names of shields.io, and the fills of our own picture; white text is readable on each.
_FILLS = {
    "brightgreen": "#2a7d3c",
    "yellowgreen": "#6b7a00",
    "red": "#c0392b",
    "lightgrey": "#5f6b7a",
}
_LABEL_FILL = "#444c56"
#: Characters.
_LONGEST = 60
#: Pixels: a letter at font size 11, a wide letter, the padding on each side, the height.
_LETTER, _WIDE, _PADDING, _HEIGHT = 6.5, 12.0, 6, 20

Color = Literal["brightgreen", "yellowgreen", "red", "lightgrey"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """The content of a badge."""

    label: str
    message: str
    color: Color


def create_project_badge(cells: Sequence[Cell]) -> Badge:
    """Return the badge of the project, with the number of proved cells."""
    passing = sum(cell.is_pass for cell in cells)
    return _create_badge("ONNX exports", cells, f"{passing} of {len(cells)} proved")


def create_model_badge(model: str, cells: Sequence[Cell]) -> Badge:
    """Return the badge of a model, with the opsets at which all devices pass."""
    failing = {cell.id.opset for cell in cells if not cell.is_pass}
    opsets = {cell.id.opset for cell in cells} - failing
    noun = "opset" if len(opsets) == 1 else "opsets"
    proved = f"{noun} {format_opsets(opsets)}" if opsets else "nothing proved"
    return _create_badge(model, cells, proved)


def _create_badge(label: str, cells: Sequence[Cell], proved: str) -> Badge:
    red = sum(cell.is_red for cell in cells)
    not_run = sum(cell.record is None for cell in cells)
    passing = sum(cell.is_pass for cell in cells)
    message = proved
    color: Color = "lightgrey"
    if red:
        message, color = f"{red} of {len(cells)} red", "red"
    elif not_run:
        message = f"{not_run} of {len(cells)} not run"
    elif passing:
        color = "brightgreen" if passing == len(cells) else "yellowgreen"
    return Badge(label=_shorten(label), message=_shorten(message), color=color)


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
    title = f"{badge.label}: {badge.message}"
    tree = elements.create_root(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "width": str(left + right),
            "height": str(_HEIGHT),
            "role": "img",
            "aria-label": title,
        },
    )
    elements.add_element(tree, "title", {}, title)
    for text, start, width, fill in (
        (badge.label, 0, left, _LABEL_FILL),
        (badge.message, left, right, _FILLS[badge.color]),
    ):
        box = {"x": str(start), "width": str(width), "height": str(_HEIGHT), "fill": fill}
        elements.add_element(tree, "rect", box)
        attributes = {
            "x": str(start + _PADDING),
            "y": "14",
            "textLength": str(width - 2 * _PADDING),
            "fill": "#fff",
            "font-family": "Verdana,DejaVu Sans,sans-serif",
            "font-size": "11",
        }
        elements.add_element(tree, "text", attributes, text)
    return elements.format_document(tree, comment)


def _shorten(text: str) -> str:
    return truncate(elements.clean_text(" ".join(text.split())), _LONGEST)
