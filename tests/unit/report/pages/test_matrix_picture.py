"""The picture shows every cell once."""

from __future__ import annotations

import re
import time
from xml.etree import ElementTree as ET

import pytest

from exporter.manifest import Manifest
from exporter.records.record import RunRecord
from exporter.report.formats import ELSEWHERE, LEGEND, MARKS, NOT_RUN
from exporter.report.site import render_site_files
from tests.unit.factory import (
    make_artifact,
    make_manifest,
    make_many,
    make_record,
    make_run,
    make_spec,
)

SVG = "{http://www.w3.org/2000/svg}"
NET = make_manifest(make_spec("net", opsets=(16, 17, 18)))


def outputs(manifest: Manifest, run: RunRecord) -> dict[str, str]:
    return render_site_files(manifest, run)


def test_the_picture_has_a_row_for_each_model_and_a_block_for_each_device() -> None:
    manifest = make_manifest(
        make_spec("a", opsets=(16, 17, 18)),
        make_spec("b", opsets=(17, 19), devices=("cpu", "cuda")),
    )
    large = make_artifact("b", 17, parameters=1_000_000)
    run = make_run(
        make_record("a/16/cpu"),
        make_record("a/17/cpu"),
        make_record("a/18/cpu", "fail"),
        make_record("b/17/cuda", "xfail", artifact=large),
    )
    tree = ET.fromstring(outputs(manifest, run)["matrix.svg"])
    head = "2 models, 1 red; 2 proved, 1 foreseen failure, 3 without a result"
    assert tree.get("aria-label") == tree.findtext(f"{SVG}title") == head
    texts = [text.text for text in tree.iter(f"{SVG}text") if text.get("class") != "on"]
    assert texts[:6] == ["b", "a", "cpu", "16..19", "cuda", "17..19"], "the largest model first"
    letters = [text.text for text in tree.iter(f"{SVG}text") if text.get("class") == "on"]
    legend = ["P", "x", "F", "."]
    # Neighbors with the same mark are one box: 16 and 17 of `a`. 17 and 19 of `b` on cpu are apart.
    assert letters == [".", ".", "P", "F", "x", ".", *legend]
    boxes = [int(str(box.get("width"))) for box in tree.iter(f"{SVG}rect")][1:]
    assert boxes[2] == 2 * boxes[3] + 1


@pytest.mark.parametrize("count", [1, 5, 21, 60])
def test_the_picture_is_within_its_frame_and_at_most_400_pixels_high(count: int) -> None:
    devices = ("cpu", "openvino", "reference", "a_device_with_a_long_name", "ort120", "cuda")
    specs = [
        make_spec(f"model_{number}", opsets=tuple(range(7, 24)), devices=devices)
        for number in range(count)
    ]
    tree = ET.fromstring(outputs(make_manifest(*specs), make_run())["matrix.svg"])
    width, height = int(str(tree.get("width"))), int(str(tree.get("height")))
    assert height <= 400
    boxes = list(tree.iter(f"{SVG}rect"))
    assert len(boxes) >= 1 + 6 * min(count, 21), "the background, and a box for each device"
    for box in boxes:
        assert int(str(box.get("x"))) + int(str(box.get("width"))) <= width
        assert int(str(box.get("y"))) + int(str(box.get("height"))) <= height
    texts = [text.text for text in tree.iter(f"{SVG}text")]
    assert ("and 39 more" in texts) is (count == 60)


def test_the_picture_is_readable_in_both_color_schemes() -> None:
    text = outputs(NET, make_run(make_record("net/16/cpu")))["matrix.svg"]
    tree = ET.fromstring(text)
    first = next(tree.iter(f"{SVG}rect"))
    assert first.get("class") == "page"
    assert (first.get("width"), first.get("height")) == (tree.get("width"), tree.get("height"))
    style = str(tree.findtext(f"{SVG}style"))
    light, dark = style.split("@media(prefers-color-scheme:dark)")
    for part in (light, dark):
        page = re.search(r"\.page\{fill:(#\w+)\}", part)
        ink = re.search(r"text\{[^}]*fill:(#\w+)\}", part)
        assert page
        assert ink
        assert {page[1], ink[1]} in ({"#fff", "#1f2328"}, {"#0d1117", "#e6edf3"})


def test_two_thousand_cells_are_quick() -> None:
    manifest, run = make_many(154)
    start = time.process_time()
    assert len(outputs(manifest, run)) == 3
    assert time.process_time() - start < 2, "a fifth of a second on an idle machine"


def test_every_mark_has_a_letter_with_enough_contrast() -> None:
    assert {*MARKS.values(), ELSEWHERE, NOT_RUN} == set(LEGEND)
    assert len({mark.letter for mark in LEGEND}) == len({mark.fill for mark in LEGEND}) == 13
    for mark in LEGEND:
        assert _contrast(mark.fill) >= 3, mark.word


def _contrast(fill: str) -> float:
    """Return the contrast of white on the color (WCAG 2.2, 1.4.3; bold letters need 3)."""
    parts = (int(fill[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
