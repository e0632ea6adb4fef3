"""Wide tables have ranges, long ones have an index; words can replace symbols."""

from __future__ import annotations

import re
from typing import Any

import pytest

from exporter.manifest import Manifest, Project, Style
from exporter.records.baseline import make_baseline
from exporter.records.record import Record, Status
from exporter.report import MARKS, NOT_RUN, render_pages
from exporter.report.rows.acceptance import AcceptanceHistory
from exporter.report.rows.cells import collect_cells
from exporter.report.rows.matrix import (
    LONG,
    WIDE,
    Matrix,
    build_matrix,
    find_opset_runs,
)
from exporter.report.text.status_marks import LEGEND
from tests.unit.factory import make_manifest, make_record, make_run, make_spec
from tests.unit.report.hostile_records import HOSTILE
from tests.unit.report.rendering import Page

EVERY = tuple(range(7, 7 + WIDE + 1))
FEW = EVERY[:-1]


def build(manifest: Manifest, *records: Record) -> Matrix:
    return build_matrix(manifest, collect_cells(manifest, make_run(*records)))


def render_overview(manifest: Manifest, *records: Record) -> Page:
    return Page.of(render_pages(manifest, make_run(*records))["COMPATIBILITY.md"])


def many(count: int, **fields: Any) -> Manifest:
    names = [f"{'abc'[number % 3]}{number}" for number in range(count)]
    return make_manifest(*(make_spec(name, opsets=(18,), **fields) for name in names))


def test_neighbors_with_equal_marks_are_one_run() -> None:
    manifest = make_manifest(make_spec("net", opsets=(9, 10, 11, 13, 14, 15)))
    records = [make_record(f"net/{opset}/cpu") for opset in (9, 10, 13, 15)]
    records.append(make_record("net/11/cpu", "fail"))
    (cells,) = collect_cells(manifest, make_run(*records)).values()
    result = [(each.opsets, each.mark.word) for each in find_opset_runs(cells)]
    assert result == [
        ("9..10", "pass"),
        ("11", "fail"),
        ("13", "pass"),
        ("14", "not run"),
        ("15", "pass"),
    ]


def test_runs_contain_only_promised_opsets() -> None:
    manifest = make_manifest(make_spec("net", opsets=(9, 10, 13, 17)))
    run = make_run(*(make_record(f"net/{opset}/cpu") for opset in (9, 10, 13, 17)))
    (cells,) = collect_cells(manifest, run).values()
    assert [each.opsets for each in find_opset_runs(cells)] == ["9..10, 13, 17"]


@pytest.mark.parametrize(("opsets", "wide"), [(FEW, False), (EVERY, True)])
def test_a_wide_table_has_ranges(opsets: tuple[int, ...], wide: bool) -> None:
    manifest = make_manifest(make_spec("net", opsets=opsets))
    records = [make_record(f"net/{n}/cpu", "pass" if n > 12 else "error") for n in opsets]
    files = render_pages(manifest, make_run(*records))
    symbol = {status: mark.symbol for status, mark in MARKS.items()}
    expected = f"7..12 {symbol[Status.ERROR]}; 13..{opsets[-1]} {symbol[Status.PASS]}"
    assert (["net", expected, "13"] in Page.of(files["COMPATIBILITY.md"]).rows) is wide
    assert (["cpu", expected, "13"] in Page.of(files["models/net.md"]).rows) is wide
    assert (
        ["model", *map(str, opsets), "all pass from"] in render_overview(manifest).rows
    ) is not wide


def test_devices_with_equal_results_share_a_row() -> None:
    devices = ("cpu", "cuda", "openvino")
    manifest = make_manifest(
        make_spec("a", opsets=(17, 18), devices=devices), make_spec("b", opsets=(18,))
    )
    records = [make_record(f"a/{n}/{device}") for n in (17, 18) for device in ("cpu", "openvino")]
    page = render_overview(manifest, *records)
    done, none = MARKS[Status.PASS].symbol, NOT_RUN.symbol
    assert ["model", "on", "17", "18", "all pass from"] in page.rows
    assert ["a", "cpu, openvino", done, done, "17"] in page.rows
    assert ["a", "cuda", none, none, ""] in page.rows
    assert ["b", "cpu", "", none, ""] in page.rows


def test_devices_with_other_opsets_have_rows_of_their_own() -> None:
    skipped = make_record("a/17/cuda", "skip")
    manifest = make_manifest(make_spec("a", opsets=(17, 18), devices=("cpu", "cuda")))
    result = build(manifest, *(make_record(f"a/{n}/cpu") for n in (17, 18)), skipped)
    assert [row.devices for row in result.parts[0].rows] == [("cpu",), ("cuda",)]


def test_one_device_has_no_column() -> None:
    page = render_overview(make_manifest(make_spec("a", opsets=(18,))))
    assert ["model", "18", "all pass from"] in page.rows


def test_a_table_of_few_models_has_no_index() -> None:
    result = build(many(LONG))
    assert result.index == ()
    assert [part.heading for part in result.parts] == [""]


def test_different_results_on_devices_count_as_rows() -> None:
    manifest = many(LONG, devices=("cpu", "cuda"))
    assert len(build(manifest).parts) == 1
    assert len(build(manifest, make_record("a0/18/cpu")).parts) == 3


def test_many_models_are_divided_by_file() -> None:
    specs = [
        make_spec(f"m{n}", opsets=(18,), manifest=f"manifests/{'xy'[n % 2]}.toml", devices=devices)
        for n, devices in ((n, ("cpu", "cuda") if n % 2 else ("cpu",)) for n in range(LONG + 2))
    ]
    manifest = make_manifest(*specs)
    records = [make_record("m0/18/cpu"), make_record("m1/18/cpu", "fail")]
    result = build(manifest, *records)
    assert [
        (each.name, each.models, each.cells, each.green, each.red) for each in result.index
    ] == [
        ("manifests/y.toml", 21, 42, 0, 1),
        ("manifests/x.toml", 21, 21, 1, 0),
    ]
    page = render_overview(manifest, *records)
    assert page.headings[3:7] == [
        "Models by opset",
        "manifests/y.toml",
        "manifests/x.toml",
        "Runtimes",
    ]
    _every_anchor_is_a_heading(page)
    rows = [row.model for part in result.parts for row in part.rows]
    assert len(rows) == LONG + 2 + 1, "one model has two results"
    assert set(rows) == {spec.id for spec in specs}


def test_many_models_of_one_file_are_divided_by_letter() -> None:
    result = build(many(LONG + 1))
    assert [each.name for each in result.index] == ["a", "b", "c"]
    assert sum(each.models for each in result.index) == LONG + 1
    _every_anchor_is_a_heading(render_overview(many(LONG + 1)))


@pytest.mark.parametrize("text", HOSTILE)
def test_no_file_or_device_becomes_structure_in_the_index(text: str) -> None:
    harmless = text.encode("utf-8", "replace").decode()
    device = harmless.replace("/", "") or "cpu"

    def page(name: str, on: str) -> Page:
        specs = [
            make_spec(f"m{n}", opsets=(18,), devices=(on,), manifest=name if n % 2 else "a.toml")
            for n in range(LONG + 1)
        ]
        return render_overview(make_manifest(*specs))

    result, plain = page(harmless, device), page("plain", "cpu")
    assert [len(row) for row in result.rows] == [len(row) for row in plain.rows]
    assert len(result.headings) == len(plain.headings)
    assert len(result.links) == len(plain.links)
    assert result.html == plain.html
    assert {link.partition("#")[0] for link in result.links} == {
        link.partition("#")[0] for link in plain.links
    }


@pytest.mark.parametrize("style", ["emoji", "text"])
def test_words_replace_symbols_if_the_project_sets_it(style: Style) -> None:
    opsets = tuple(range(9, 9 + len(Status) + 1))
    specs = (make_spec("net", opsets=opsets), make_spec("wide", opsets=EVERY))
    devices = make_manifest(*specs).project.devices
    manifest = Manifest(
        project=Project(root="/project", devices=devices, style=style), models=specs
    )
    records = [make_record(f"net/{n}/cpu", s) for n, s in zip(opsets, Status, strict=False)]
    files = render_pages(manifest, make_run(*records))
    symbols = [mark.symbol for mark in LEGEND]
    assert files.keys() == {"COMPATIBILITY.md", "index.html", "models/net.md", "models/wide.md"}
    for text in files.values():
        assert any(symbol in text for symbol in symbols) is (style == "emoji")
    expected = ["cpu", *(status.value for status in Status), "not run"]
    rows = [row[:-1] for row in Page.of(files["models/net.md"]).rows]
    assert (expected in rows) is (style == "text")


def _every_anchor_is_a_heading(page: Page) -> None:
    slugs = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in page.headings}
    anchors = [link.removeprefix("#") for link in page.links if link.startswith("#")]
    assert len(anchors) > 1
    assert set(anchors) <= slugs


def test_red_models_are_first_and_changed_ones_are_marked() -> None:
    names = ("green", "changed", "red")
    manifest = make_manifest(*(make_spec(name, opsets=(18,)) for name in names))
    statuses = {"green": "pass", "changed": "pass", "red": "fail"}
    run = make_run(*(make_record(f"{name}/18/cpu", statuses[name]) for name in names))
    before = make_run(make_record("green/18/cpu"), make_record("red/18/cpu", "fail"))
    history = AcceptanceHistory(make_baseline(before))
    (part,) = build_matrix(manifest, collect_cells(manifest, run), history).parts
    assert [(row.model, row.is_changed) for row in part.rows] == [
        ("red", False),
        ("changed", True),
        ("green", False),
    ]
