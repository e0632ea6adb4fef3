"""A row for each model and a column for each device; long tables have an index."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from exporter.manifest import Device, Manifest, Project, RuntimeEnvironment, Style
from exporter.records.baseline import make_baseline
from exporter.records.record import CheckResult, Record, Status
from exporter.report.formats import LEGEND, MARKS, NOT_RUN
from exporter.report.pages.compatibility import build_overview
from exporter.report.pages.markdown import render_pages
from exporter.report.pages.model_page import find_opset_runs
from exporter.report.pages.templates import render
from exporter.report.rows.cells import AcceptanceHistory, Row, collect_cells
from exporter.report.rows.matrix import LONG, NARROW, WIDE, build_matrix, build_tool_table
from tests.unit.factory import make_manifest, make_record, make_run, make_spec
from tests.unit.report.hostile_records import HOSTILE
from tests.unit.report.pages.test_markdown import render_with_index
from tests.unit.report.rendering import Page

EVERY = tuple(range(7, 7 + WIDE + 1))


FEW = EVERY[:-1]


def build(manifest: Manifest, *records: Record) -> tuple[Row, ...]:
    return build_matrix(manifest, collect_cells(manifest, make_run(*records)))


def render_overview(manifest: Manifest, *records: Record) -> Page:
    page = build_overview(manifest, make_run(*records))
    return Page.of(render("compatibility.md", None, page=page))


def many(count: int, **fields: Any) -> Manifest:
    names = [f"{'abc'[number % 3]}{number}" for number in range(count)]
    return make_manifest(*(make_spec(name, opsets=(18,), **fields) for name in names))


def test_neighbors_with_equal_marks_are_one_run() -> None:
    manifest = make_manifest(make_spec("net", opsets=(9, 10, 11, 13, 14, 15)))
    records = [make_record(f"net/{opset}/cpu") for opset in (9, 10, 13, 15)]
    records.append(make_record("net/11/cpu", "fail"))
    (cells,) = collect_cells(manifest, make_run(*records)).values()
    result = [(each["opsets"], each["mark"].word) for each in find_opset_runs(cells)]
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
    assert [each["opsets"] for each in find_opset_runs(cells)] == ["9..10, 13, 17"]


@pytest.mark.parametrize(("opsets", "wide"), [(FEW, False), (EVERY, True)])
def test_a_wide_table_of_a_model_has_ranges(opsets: tuple[int, ...], wide: bool) -> None:
    manifest = make_manifest(make_spec("net", opsets=opsets))
    records = [make_record(f"net/{n}/cpu", "pass" if n > 12 else "error") for n in opsets]
    files = render_pages(manifest, make_run(*records))
    symbol = {status: mark.symbol for status, mark in MARKS.items()}
    expected = f"7..12 {symbol[Status.ERROR]}; 13..{opsets[-1]} {symbol[Status.PASS]}"
    assert (["cpu", expected, "13"] in Page.of(files["models/net.md"]).rows) is wide


def test_a_cell_has_the_opsets_of_each_outcome() -> None:
    manifest = make_manifest(
        make_spec("a", opsets=tuple(range(9, 14)), devices=("cpu", "openvino")),
        make_spec("b", opsets=(18,)),
    )
    statuses = {9: "xfail", 10: "pass", 11: "fail", 12: "pass", 13: "xfail"}
    records = [make_record(f"a/{opset}/cpu", status) for opset, status in statuses.items()]
    page = render_overview(manifest, *records, make_record("b/18/cpu"))
    red, none = MARKS[Status.FAIL].symbol, NOT_RUN.symbol
    assert ["model", "cpu", "openvino"] in page.rows
    assert ["a", f"✅ 10, 12 🟡 9, 13 {red} 11", f"{none} 9..13"] in page.rows
    assert ["b", "✅ 18", ""] in page.rows


def test_devices_with_equal_results_share_a_column() -> None:
    devices = ("cpu", "openvino", "web")
    specs = [make_spec(name, opsets=(18,), devices=devices) for name in "ab"]
    records = [make_record(f"{name}/18/{device}") for name in "ab" for device in devices]
    page = render_overview(make_manifest(*specs), *records)
    assert ["model", "cpu, openvino, web"] in page.rows
    assert ["a", "✅ 18"] in page.rows
    records[-1] = make_record("b/18/web", "xfail")
    page = render_overview(make_manifest(*specs), *records)
    assert ["model", "cpu, openvino", "web"] in page.rows
    assert ["a", "✅ 18", "✅ 18"] in page.rows
    assert ["b", "✅ 18", "🟡 18"] in page.rows


def test_devices_of_few_models_are_in_one_column_of_a_wide_table() -> None:
    """Each of `NARROW - 1` devices differs at another opset; two further ones have one model."""
    common = [f"d{number}" for number in range(NARROW - 1)]
    opsets = tuple(range(9, 9 + len(common)))
    every = make_spec("every", opsets=opsets, devices=("few", *common, "rare"))
    most = make_spec("most", opsets=(18,), devices=tuple(common))
    records = [make_record(f"every/{9 + index}/{name}") for index, name in enumerate(common)]
    records += [make_record("every/9/few", "xfail"), make_record("every/10/rare")]
    page = render_overview(make_manifest(every, most), *records)
    assert ["model", *common, "other devices"] in page.rows
    rows = [row[1:] for row in page.rows if row[0] == "every" and len(row) == NARROW + 1]
    few, rare = "few 🟡 9 ⬜ 10..14", "rare ✅ 10 ⬜ 9, 11..14"
    assert [(row[0], row[-1]) for row in rows] == [("✅ 9 ⬜ 10..14", f"{few} {rare}")]
    assert ["most", *["⬜ 18"] * len(common), ""] in page.rows


def test_no_line_breaks_between_a_mark_and_its_opsets() -> None:
    spec = make_spec("a", opsets=(9, 10))
    text = render_pages(make_manifest(spec), make_run(make_record("a/9/cpu")))["COMPATIBILITY.md"]
    assert "| ✅&nbsp;9<br>⬜&nbsp;10 |" in text


def test_a_device_has_its_runtime_and_its_last_opset_in_the_head() -> None:
    environment = RuntimeEnvironment(name="old", requirements=("onnxruntime==1.17.*",))
    device = Device(name="old", runtime="onnxruntime", environment=environment)
    spec = make_spec("a", opsets=(20, 21), devices=("cpu", "old"))
    newer = make_spec("b", opsets=(21,), devices=("old",))
    made = make_manifest(spec, newer)
    project = made.project.model_copy(update={"devices": (*made.project.devices[:-1], device)})
    records = [make_record(f"a/{opset}/cpu") for opset in (20, 21)]
    records.append(make_record("a/20/old", runtime="onnxruntime 1.17.3, numpy 1.26.4"))
    for model in "ab":
        text = "ONNX Runtime 1.17 loads opsets up to 20"
        records.append(make_record(f"{model}/21/old", "unavailable", stage=None, message=text))
    page = render_overview(Manifest(project=project, models=(spec, newer)), *records)
    assert ["model", "cpu", "old"] in page.rows
    assert any(
        "old: ONNX Runtime 1.17.3, 1 thread, opsets up to 20" in text for text in page.paragraphs
    )
    assert ["a", "✅ 20..21", "✅ 20"] in page.rows
    symbol = MARKS[Status.UNAVAILABLE].symbol
    assert ["b", "", f"{symbol} 21"] in page.rows
    reason = "ONNX Runtime 1.17 loads opsets up to 20"
    assert [symbol, "*/21/old", "unavailable by its runtime", reason] in page.rows


def test_the_head_of_a_plugin_names_its_package_and_emulated_hardware() -> None:
    environment = RuntimeEnvironment(name="w", requirements=("onnxruntime-ep-webgpu==0.4.*",))
    library = "onnxruntime_ep_webgpu:get_library_path"
    device = Device(
        name="webgpu", runtime="onnxruntime", environment=environment, provider_library=library
    )
    made = make_manifest(make_spec("a", opsets=(18,), devices=("webgpu",)))
    manifest = made.model_copy(
        update={"project": made.project.model_copy(update={"devices": (device,)})}
    )
    packages = "onnxruntime-ep-webgpu 0.4.0, onnxruntime 1.31.1"
    for metrics, suffix in (({}, ""), ({"hardware": "software"}, " (software)")):
        check = CheckResult(check="placement", status=Status.PASS, metrics=metrics)
        record = make_record("a/18/webgpu", runtime=packages, checks=(check,))
        page = render_overview(manifest, record)
        head = f"webgpu: ONNX Runtime 1.31.1, onnxruntime-ep-webgpu 0.4.0{suffix}, 1 thread."
        assert head in page.paragraphs


def test_a_table_of_few_models_has_no_index() -> None:
    assert [part["heading"] for part in build(many(LONG, devices=("cpu", "cuda")))] == [""]


def test_many_models_are_divided_by_file() -> None:
    specs = [
        make_spec(f"m{n}", opsets=(18,), manifest=f"manifests/{'xy'[n % 2]}.toml", devices=devices)
        for n, devices in ((n, ("cpu", "cuda") if n % 2 else ("cpu",)) for n in range(LONG + 2))
    ]
    manifest = make_manifest(*specs)
    records = [make_record("m0/18/cpu"), make_record("m1/18/cpu", "fail")]
    result = build(manifest, *records)
    assert [(each["heading"], each["head"]) for each in result] == [
        ("manifests/y.toml", "21 models, 1 red; 0 proved, 41 without a result"),
        ("manifests/x.toml", "21 models, 0 red; 1 proved, 20 without a result"),
    ]
    page = render_overview(manifest, *records)
    assert page.headings[1:4] == ["Models", "manifests/y.toml", "manifests/x.toml"]
    _every_anchor_is_a_heading(page)
    rows = [row["model"] for part in result for row in part["rows"]]
    assert sorted(rows) == sorted(spec.id for spec in specs)


def test_many_models_of_one_file_are_divided_by_letter() -> None:
    result = build(many(LONG + 1))
    assert [each["heading"] for each in result] == ["a", "b", "c"]
    assert sum(len(each["rows"]) for each in result) == LONG + 1
    _every_anchor_is_a_heading(render_overview(many(LONG + 1)))


def render_index_of(name: str, device: str) -> Page:
    specs = [
        make_spec(f"m{n}", opsets=(18,), devices=(device,), manifest=name if n % 2 else "a.toml")
        for n in range(LONG + 1)
    ]
    return render_overview(make_manifest(*specs))


@cache
def render_plain_index() -> Page:
    return render_index_of("plain", "cpu")


@pytest.mark.parametrize("text", HOSTILE)
def test_no_file_or_device_becomes_structure_in_the_index(text: str) -> None:
    harmless = text.encode("utf-8", "replace").decode()
    device = harmless.replace("/", "") or "cpu"
    result, plain = render_index_of(harmless, device), render_plain_index()
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
    files = render_with_index(manifest, make_run(*records))
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
    (part,) = build_matrix(manifest, collect_cells(manifest, run), history)
    assert [(row["model"], row["is_changed"]) for row in part["rows"]] == [
        ("red", False),
        ("changed", True),
        ("green", False),
    ]


TOOLS = {"onnxscript": "0.7.2", "platform": "linux x86_64", "torch": "2.13.0"}


PARTS = {
    "tool.onnxscript": "0.6.2 0123456789ab",
    "tool.platform": "linux x86_64",
    "tool.numpy of ort117": "1.26.4",
    "entry": "1",
}


def test_each_toolchain_has_a_column() -> None:
    table = build_tool_table(
        make_run(
            make_record("net/18/cpu", fingerprint={"tool.onnxscript": "0.7.2 0123456789ab"}),
            make_record("net/18/cpu@old", fingerprint=PARTS),
            tools=TOOLS,
        )
    )
    assert table["toolchains"] == ("old",)
    assert table["rows"] == (
        ("onnxscript", "0.7.2", "0.6.2"),
        ("platform", "linux x86_64", "linux x86_64"),
        ("torch", "2.13.0", "2.13.0"),
    )


def test_a_toolchain_without_results_has_no_column() -> None:
    record = make_record("net/18/cpu@old", "unavailable", fingerprint={"entry": "1"})
    table = build_tool_table(make_run(record, tools=TOOLS))
    assert (table["toolchains"], table["rows"][0]) == ((), ("onnxscript", "0.7.2"))
