"""The page for a browser, tested without a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import time
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.errors import ExitCode, ExporterError, Location, Problem
from exporter.manifest import Manifest, Project
from exporter.records.baseline import make_baseline
from exporter.records.record import (
    Blame,
    CheckResult,
    Culprit,
    MissingOperator,
    Record,
    RunRecord,
    Status,
)
from exporter.report.formats import MARKS
from exporter.report.pages.index_page import build_index_data, render_index
from exporter.report.rows.cells import AcceptanceHistory, collect_cells
from exporter.report.site import render_site_files
from tests.unit.factory import (
    make_artifact,
    make_manifest,
    make_many,
    make_record,
    make_run,
    make_spec,
)
from tests.unit.report.hostile_records import HOSTILE
from tests.unit.report.pages.test_markdown import MANIFEST, RECORDS, hostile_project


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the text of each script and style."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:
            self.texts.append(data)


def page_of(manifest: Manifest, run: RunRecord) -> str:
    return str(render_site_files(manifest, run)["index.html"])


def data_of(page: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Elements(page).texts[1])
    return content


def row_of(*records: Record, **spec: Any) -> dict[str, Any]:
    content: dict[str, Any] = data_of(page_of(make_manifest(make_spec(**spec)), make_run(*records)))
    (row,) = content["rows"]
    return dict(row)


def checked(check: str, of_limit: float, status: Status = Status.PASS) -> CheckResult:
    return CheckResult(
        check=check, status=status, message="off by 0.12345", metrics={"of_limit": of_limit}
    )


def page_with(texts: Iterable[str]) -> Elements:
    """Return the page of a project with a model for each text, which is in all its free texts."""
    projects = [hostile_project(text, f"net_{number}") for number, text in enumerate(texts)]
    devices = tuple(device for manifest, _ in projects for device in manifest.project.devices)
    manifest = Manifest(
        project=Project(root="/project", devices=devices),
        models=tuple(model for manifest, _ in projects for model in manifest.models),
    )
    tools = {name: version for _, run in projects for name, version in run.tools.items()}
    records = [record for _, run in projects for record in run.records]
    return Elements(page_of(manifest, make_run(*records, tools=tools)))


def test_no_text_ends_the_data_element() -> None:
    elements = page_with(HOSTILE)
    plain = page_with(f"plain {number}" for number in range(len(HOSTILE)))
    assert [tag for tag, _ in elements.tags] == [tag for tag, _ in plain.tags]
    data = elements.texts[1]
    assert not set("<>&\u2028\u2029\u202e\x1b") & set(data)
    assert {row["model"] for row in json.loads(data)["rows"]} == {
        f"net_{number}" for number in range(len(HOSTILE))
    }


@given(st.text(min_size=1).filter(lambda text: text.isprintable()))
def test_texts_are_unchanged(text: str) -> None:
    text_shown = " ".join(f"x{text}".split())[:200]
    row = row_of(make_record("alexnet/18/cpu", "skip"), description=text_shown, opsets=(18,))
    assert row["description"] == text_shown
    assert row["settings"] == "1 thread"


def test_the_policy_allows_only_the_own_script_and_style() -> None:
    elements = Elements(page_of(MANIFEST, make_run(*RECORDS)))
    (policy,) = (
        attributes["content"]
        for tag, attributes in elements.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    style, _, script = elements.texts
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (script, style)
    ]
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def test_the_page_needs_no_other_resource() -> None:
    page = page_of(MANIFEST, make_run(*RECORDS))
    for tag, attributes in Elements(page).tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert "src" not in attributes
        assert (attributes.get("href") or "COMPATIBILITY.md") == "COMPATIBILITY.md"
    addresses = set(re.findall(r"https?://[\w.]+", page))
    assert addresses <= {"http://www.w3.org"}, "browsers do not fetch the namespace of SVG"


def test_every_promised_cell_has_its_mark() -> None:
    data = data_of(page_of(MANIFEST, make_run(*RECORDS, make_record("gone/18/cpu"))))
    marks = {
        f"{row['model']}/{cell['opset']}/{row['device']}": cell["mark"]
        for row in data["rows"]
        for cell in row["cells"]
    }
    assert len(marks) == 12
    assert marks["dcgan/9/cpu"] == "error"
    assert marks["dcgan/19/cpu"] == "not run"
    assert (
        data["head"]["summary"]
        == "2 models, 2 red; 4 proved, 1 foreseen failure, 2 not run here, 3 without a result"
    )
    counts = {mark["word"]: mark["cells"] for mark in data["head"]["marks"]}
    assert (counts["pass"], counts["not run"], counts["crash"]) == (4, 3, 0)
    assert data["head"]["devices"] == ["cpu", "cuda"]


def test_only_a_pass_is_green() -> None:
    families = {
        mark["word"]: mark["family"]
        for mark in data_of(page_of(MANIFEST, make_run()))["head"]["marks"]
    }
    assert [word for word, family in families.items() if family == "good"] == ["pass"]
    assert families["xfail"] == "foreseen"
    assert {word for word, family in families.items() if family == "bad"} == {
        MARKS[status].word for status in Status if status.is_red
    }
    assert families["skip"] == families["unavailable"] == families["not run"] == "open"


def test_a_cell_has_reasons_and_commands() -> None:
    row = row_of(
        make_record(
            "alexnet/18/cpu",
            "fail",
            check="parity",
            message="off by 0.123456",
            detail="Traceback",
            log="alexnet/logs/18.log",
            blame=Blame(culprit=Culprit.EXPORTER, sample="declared", evidence=()),
            checks=(checked("opset", 0.2), checked("parity", 12.345, Status.FAIL)),
        ),
        opsets=(18,),
    )
    (cell,), (outcome,), ((opset, parity),) = row["cells"], row["outcomes"], row["checks"]
    assert outcome["stage"] == "parity"
    assert outcome["check"] == "parity"
    assert outcome["reason"] == "off by 0.12"
    assert outcome["detail"] == "Traceback"
    assert cell["export_command"] == "exporter export 'alexnet/18/cpu'"
    assert cell["repro_command"] == "exporter repro alexnet/18/cpu"
    assert cell["log"] == "build/alexnet/logs/18.log"
    assert opset["figures"] == "≤ 50% of its limit"
    assert parity == {
        "check": "parity",
        "mark": "fail",
        "message": "off by 0.12",
        "figures": "of_limit 12",
    }


@pytest.mark.parametrize(
    ("errors", "step"),
    [
        ((), None),
        ((0.0,), 0.01),
        ((0.3, 0.02), 0.5),
        ((1.0,), 1.0),
        ((1.26, 0.1), 1.3),
    ],
)
def test_the_error_is_the_largest_and_rounded(
    errors: tuple[float, ...], step: float | None
) -> None:
    checks = tuple(checked("parity", error) for error in errors)
    row = row_of(make_record("alexnet/18/cpu", checks=checks), opsets=(18,))
    assert row["cells"][0].get("error") == step
    assert "is_unbounded" not in row["cells"][0]


@pytest.mark.parametrize("error", [math.inf, math.nan])
def test_an_infinite_error_is_marked(error: float) -> None:
    checks = (checked("axes", 0.1), checked("parity", error, Status.FAIL))
    row = row_of(make_record("alexnet/18/cpu", "fail", checks=checks), opsets=(18,))
    assert row["cells"][0]["is_unbounded"] is True
    assert "error" not in row["cells"][0]


def test_equal_values_of_opsets_are_stored_once() -> None:
    records = [make_record(f"alexnet/{opset}/cpu") for opset in (17, 18)]
    row = row_of(*records)
    assert len(row["outcomes"]) == len(row["checks"]) == 1
    assert [file["exporter"] for file in row["files"]] == [
        "torchscript (trace)",
        "dynamo (export)",
    ]


def test_a_size_has_three_digits() -> None:
    artifact = make_artifact("alexnet", 18, bytes=244_413_987)
    row = row_of(make_record("alexnet/18/cpu", artifact=artifact), opsets=(18,))
    assert (row["files"][0]["bytes"], row["files"][0]["size"]) == (244_000_000, "244 MB")


def test_a_project_overrides_the_script(tmp_path: Path) -> None:
    (tmp_path / "index.js").write_text("'custom'")
    project = MANIFEST.project.model_copy(update={"templates": str(tmp_path)})
    manifest = MANIFEST.model_copy(update={"project": project})
    page = page_of(manifest, make_run())
    assert Elements(page).texts[2] == "'custom'"
    (tmp_path / "index.js").write_bytes(b"\xff\xfe")
    with pytest.raises(ExporterError, match=r"index\.js: cannot be read as text") as caught:
        page_of(manifest, make_run())
    assert caught.value.exit_code is ExitCode.MANIFEST


def test_ten_thousand_cells_are_quick() -> None:
    manifest, run = make_many(770)
    start = time.process_time()
    page = render_index(
        *build_index_data(manifest, run, collect_cells(manifest, run), AcceptanceHistory()), None
    )
    assert time.process_time() - start < 5, "about one second on an idle machine"
    assert len(data_of(page)["rows"]) == 770


def test_problems_of_files_are_listed() -> None:
    manifest, run = make_manifest(make_spec()), make_run()
    assert "Unreadable manifests" not in page_of(manifest, run)
    location = Location(file="manifests/a.toml", line=3)
    problem = Problem(message="<b>: expected\n::error::", location=location)
    page = page_of(manifest.model_copy(update={"problems": (problem,)}), run)
    assert "<li>manifests/a.toml:3: &lt;b&gt;: expected ::error::</li>" in page
    assert data_of(page)["head"]["problems"] == ["manifests/a.toml:3: <b>: expected ::error::"]


def test_clusters_changes_and_operators_are_in_the_data() -> None:
    missing = (MissingOperator(operator="aten::stft", count=1),)
    red = make_record("alexnet/17/cpu", "error", message="no", missing=missing)
    green = make_record("alexnet/18/cpu")
    manifest, run = make_manifest(make_spec()), make_run(red, green)
    accepted = make_baseline(make_run(make_record("alexnet/17/cpu"), green))
    history = AcceptanceHistory(accepted)
    head, (row,) = build_index_data(manifest, run, collect_cells(manifest, run), history)
    (cluster,) = head["clusters"]
    assert cluster == {
        "title": "error at convert: 1 cell of alexnet",
        "reason": "TorchScript has no translation of aten::stft at this opset",
        "operator": "aten::stft",
        "is_new": True,
    }
    assert row["operators"] == "Conv Relu aten::stft"
    first, second = row["cells"]
    assert (first["clusters"], first["is_changed"]) == ((0,), True)
    assert not second.keys() & {"clusters", "is_changed"}
    assert head["export_tools"] == "torch 2.13.0, onnx 1.23.2"
    _, rows = build_index_data(manifest, run, collect_cells(manifest, run), AcceptanceHistory())
    assert rows
    assert not any("is_changed" in cell for row in rows for cell in row["cells"])
