"""A badge is green for proved opsets, and its picture shows every cell once."""

from __future__ import annotations

import json
import time
from xml.etree import ElementTree as ET

import pytest

from exporter.manifest import Manifest
from exporter.records.record import RunRecord
from exporter.report import MARKS, NOT_RUN, render_exports
from exporter.report.text.status_marks import LEGEND
from tests.unit.factory import make_manifest, make_record, make_run, make_spec

SVG = "{http://www.w3.org/2000/svg}"
NET = make_manifest(make_spec("net", opsets=(16, 17, 18)))


def outputs(manifest: Manifest, run: RunRecord) -> dict[str, str]:
    return render_exports(manifest, run)


def badge(statuses: str, name: str = "badges/net") -> tuple[str, str]:
    records = [
        make_record(f"net/{opset}/cpu", status)
        for opset, status in zip((16, 17, 18), statuses.split(), strict=False)
        if status != "-"
    ]
    content = json.loads(outputs(NET, make_run(*records))[f"{name}.json"])
    assert content["schemaVersion"] == 1
    return content["message"], content["color"]


@pytest.mark.parametrize(
    ("statuses", "message", "color"),
    [
        ("pass pass pass", "opsets 16..18", "brightgreen"),
        ("xfail pass pass", "opsets 17..18", "yellowgreen"),
        ("pass skip pass", "opsets 16, 18", "yellowgreen"),
        ("unavailable xfail pass", "opset 18", "yellowgreen"),
        ("fail pass pass", "1 of 3 red", "red"),
        ("fail pass -", "1 of 3 red", "red"),
        ("xpass crash inconclusive", "3 of 3 red", "red"),
        ("pass pass -", "1 of 3 not run", "lightgrey"),
        ("- - -", "3 of 3 not run", "lightgrey"),
        ("xfail xfail xfail", "nothing proved", "lightgrey"),
        ("skip unavailable skip", "nothing proved", "lightgrey"),
    ],
)
def test_the_badge_of_a_model(statuses: str, message: str, color: str) -> None:
    assert badge(statuses) == (message, color)


@pytest.mark.parametrize(
    ("statuses", "message", "color"),
    [
        ("pass pass pass", "3 of 3 proved", "brightgreen"),
        ("xfail pass pass", "2 of 3 proved", "yellowgreen"),
        ("skip skip skip", "0 of 3 proved", "lightgrey"),
        ("pass error pass", "1 of 3 red", "red"),
    ],
)
def test_the_badge_of_all_models(statuses: str, message: str, color: str) -> None:
    assert badge(statuses, "badge") == (message, color)


def test_an_opset_counts_if_every_device_passes() -> None:
    manifest = make_manifest(make_spec("net", opsets=(17, 18), devices=("cpu", "cuda")))
    records = [make_record(f"net/{n}/{d}") for n, d in ((17, "cpu"), (18, "cpu"), (18, "cuda"))]
    records.append(make_record("net/17/cuda", "unavailable"))
    content = json.loads(outputs(manifest, make_run(*records))["badges/net.json"])
    assert content["message"] == "opset 18"


def test_the_picture_of_a_badge_has_the_text_of_the_json() -> None:
    files = outputs(NET, make_run(make_record("net/16/cpu", "fail")))
    for name in ("badge", "badges/net"):
        tree = ET.fromstring(files[f"{name}.svg"])
        content = json.loads(files[f"{name}.json"])
        assert [text.text for text in tree.iter(f"{SVG}text")] == [
            content["label"],
            content["message"],
        ]
        assert tree.get("aria-label") == f"{content['label']}: {content['message']}"


def test_the_picture_has_a_row_for_each_model_and_a_column_for_each_opset() -> None:
    manifest = make_manifest(
        make_spec("a", opsets=(16, 17, 18)),
        make_spec("b", opsets=(17, 19), devices=("cpu", "cuda")),
    )
    run = make_run(
        make_record("a/16/cpu"),
        make_record("a/17/cpu"),
        make_record("a/18/cpu", "fail"),
        make_record("b/17/cuda", "xfail"),
    )
    tree = ET.fromstring(outputs(manifest, run)["matrix.svg"])
    assert tree.get("aria-label") == "3 of 7 cells are green"
    plain = [text.text for text in tree.iter(f"{SVG}text") if text.get("class") is None]
    assert plain[:5] == ["cpu", "a", "b", "cuda", "b"]
    opsets = [text.text for text in tree.iter(f"{SVG}text") if text.get("class") == "opset"]
    assert opsets == ["16", "17", "18", "19", "17", "19"]
    letters = [text.text for text in tree.iter(f"{SVG}text") if text.get("class") == "on"]
    legend = ["P", "x", "F", "."]
    # Neighbors with the same mark are one box: 16 and 17 of `a`. 17 and 19 of `b` on cpu are apart.
    assert letters == ["P", "F", ".", ".", "x", ".", *legend]
    boxes = [int(str(box.get("width"))) for box in tree.iter(f"{SVG}rect")]
    assert boxes[0] == 2 * boxes[1] + 2


def test_the_picture_is_within_its_frame() -> None:
    specs = [make_spec(f"model_{number}", opsets=tuple(range(7, 24))) for number in range(5)]
    tree = ET.fromstring(outputs(make_manifest(*specs), make_run())["matrix.svg"])
    boxes = list(tree.iter(f"{SVG}rect"))
    assert len(boxes) > 5  # at least one for each model, and the background
    for box in boxes:
        assert int(str(box.get("x"))) + int(str(box.get("width"))) <= int(str(tree.get("width")))
        assert int(str(box.get("y"))) + int(str(box.get("height"))) <= int(str(tree.get("height")))


def test_ten_thousand_cells_are_quick() -> None:
    specs = [make_spec(f"model_{number}", opsets=tuple(range(9, 22))) for number in range(770)]
    records = [
        make_record(f"{spec.id}/{opset}/cpu", "fail" if opset % 2 else "pass", message="off")
        for spec in specs
        for opset in spec.opsets
    ]
    manifest, run = make_manifest(*specs), make_run(*records)
    start = time.process_time()
    assert len(outputs(manifest, run)) == 2 * 771 + 3
    assert time.process_time() - start < 5, "less than a second on an idle machine"


def test_every_mark_has_a_letter_with_enough_contrast() -> None:
    assert {*MARKS.values(), NOT_RUN} == set(LEGEND)
    assert len({mark.letter for mark in LEGEND}) == len({mark.fill for mark in LEGEND}) == 12
    for mark in LEGEND:
        assert _contrast(mark.fill) >= 3, mark.word


def _contrast(fill: str) -> float:
    """Return the contrast of white on the color (WCAG 2.2, 1.4.3; bold letters need 3)."""
    parts = (int(fill[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
