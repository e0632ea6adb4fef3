"""The badge has the number of proved models, and no green color without a proof."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from exporter.report.pages.badge import draw_badge
from exporter.report.rows.cells import collect_cells
from tests.unit.factory import make_manifest, make_record, make_run, make_spec

SVG = "{http://www.w3.org/2000/svg}"
NET = make_manifest(make_spec("net", opsets=(16, 17, 18)))
GREEN, RED, GREY = "#2a7d3c", "#c0392b", "#5f6b7a"


@pytest.mark.parametrize(
    ("statuses", "message", "color"),
    [
        ("pass pass pass", "1 model proved", GREEN),
        ("xfail pass pass", "1 model proved", GREEN),
        ("skip skip skip", "0 models proved", GREY),
        ("xfail xfail xfail", "0 models proved", GREY),
        ("pass error pass", "1 of 1 model red", RED),
        ("pass error -", "1 of 1 model red", RED),
        ("pass pass -", "1 model proved, 1 cell not run", GREY),
        ("- - -", "0 models proved, 3 cells not run", GREY),
    ],
)
def test_the_badge_of_all_models(statuses: str, message: str, color: str) -> None:
    records = [
        make_record(f"net/{opset}/cpu", status)
        for opset, status in zip((16, 17, 18), statuses.split(), strict=True)
        if status != "-"
    ]
    (cells,) = collect_cells(NET, make_run(*records)).values()
    tree = ET.fromstring(draw_badge(cells))
    assert [text.text for text in tree.iter(f"{SVG}text")] == ["ONNX exports", message]
    assert tree.get("aria-label") == f"ONNX exports: {message}"
    assert {rect.get("fill") for rect in tree.iter(f"{SVG}rect")} & {GREEN, RED, GREY} == {color}
