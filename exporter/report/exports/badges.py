"""Badges for a README: a picture, and the JSON from which shields.io draws one (its "endpoint").

In: a label and the `Cell`s that it speaks for. Out: a `Badge`, its SVG and its JSON. A badge is
green where every promise was proved, and never where a result is missing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from unicodedata import east_asian_width

from exporter.core.sanitize import truncate
from exporter.report.rows.cells import Cell
from exporter.report.rows.opset_ranges import fold_opsets
from exporter.report.text import xml_elements as elements

#: Names that shields.io knows, and the fills of our own picture: white text is read on each.
_FILLS = {
    "brightgreen": "#2a7d3c",
    "yellowgreen": "#6b7a00",
    "red": "#c0392b",
    "lightgrey": "#5f6b7a",
}
_LABEL_FILL = "#444c56"
_LONGEST = 60
#: Pixels of a letter of 11 pixels, of a wide one, and at each side of a text.
_LETTER, _WIDE, _PAD = 6.5, 12.0, 6
_HEIGHT = 20

Colour = Literal["brightgreen", "yellowgreen", "red", "lightgrey"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """What a badge says."""

    label: str
    message: str
    colour: Colour


def badge_of_all(cells: Sequence[Cell]) -> Badge:
    """The badge of the whole project."""
    passing = sum(cell.is_pass for cell in cells)
    return _badge("ONNX exports", cells, f"{passing} of {len(cells)} proved")


def badge_of_model(model: str, cells: Sequence[Cell]) -> Badge:
    """The badge of one model: the opsets at which all was proved on every device."""
    lost = {cell.id.opset for cell in cells if not cell.is_pass}
    opsets = {cell.id.opset for cell in cells} - lost
    said = f"opset{'s' if len(opsets) > 1 else ''} {fold_opsets(opsets)}" if opsets else ""
    return _badge(model, cells, said or "nothing proved")


def _badge(label: str, cells: Sequence[Cell], proved: str) -> Badge:
    red = sum(cell.record is not None and cell.record.status.is_red for cell in cells)
    not_run = sum(cell.record is None for cell in cells)
    message, colour = proved, _colour(cells)
    if red:
        message, colour = f"{red} of {len(cells)} red", "red"
    elif not_run:
        message, colour = f"{not_run} of {len(cells)} not run", "lightgrey"
    return Badge(label=_shortened(label), message=_shortened(message), colour=colour)


def _colour(cells: Sequence[Cell]) -> Colour:
    passing = sum(cell.is_pass for cell in cells)
    if not passing:
        return "lightgrey"
    return "brightgreen" if passing == len(cells) else "yellowgreen"


def badge_json(badge: Badge) -> str:
    """What shields.io reads: https://shields.io/badges/endpoint-badge."""
    said = {
        "schemaVersion": 1,
        "label": badge.label,
        "message": badge.message,
        "color": badge.colour,
    }
    return json.dumps(said, indent=2) + "\n"


def badge_svg(badge: Badge, comment: str) -> str:
    """The badge as a picture that needs nothing from elsewhere.

    Args:
        badge: What it says.
        comment: Stands before the picture.
    """
    left, right = _width(badge.label), _width(badge.message)
    said = f"{badge.label}: {badge.message}"
    tree = elements.root(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "width": str(left + right),
            "height": str(_HEIGHT),
            "role": "img",
            "aria-label": said,
        },
    )
    elements.add(tree, "title", {}, said)
    for text, start, width, fill in (
        (badge.label, 0, left, _LABEL_FILL),
        (badge.message, left, right, _FILLS[badge.colour]),
    ):
        box = {"x": str(start), "width": str(width), "height": str(_HEIGHT), "fill": fill}
        elements.add(tree, "rect", box)
        place = {
            "x": str(start + _PAD),
            "y": "14",
            "textLength": str(width - 2 * _PAD),
            "fill": "#fff",
            "font-family": "Verdana,DejaVu Sans,sans-serif",
            "font-size": "11",
        }
        elements.add(tree, "text", place, text)
    return elements.to_text(tree, comment)


def _width(text: str) -> int:
    letters = (_WIDE if east_asian_width(each) in "WF" else _LETTER for each in text)
    return round(sum(letters)) + 2 * _PAD


def _shortened(text: str) -> str:
    return truncate(elements.clean(" ".join(text.split())), _LONGEST)
