from __future__ import annotations

import cProfile
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.core.check_table import FAILURE_CODES
from exporter.core.errors import ExitCode, ExporterError
from exporter.gate.baseline_comparison import compare_results
from exporter.gate.finding import GateFinding
from exporter.manifest import Axis, Case, Constant, Device, Fill, Input, Manifest, Output, Project
from exporter.records.baseline import Baseline
from exporter.records.record import (
    INITIAL_WEIGHTS,
    Blame,
    CheckResult,
    Culprit,
    Divergence,
    MissingOperator,
    Record,
    Route,
    RunRecord,
    Status,
)
from exporter.report.formats import MARKS, NOT_RUN
from exporter.report.pages.markdown import MARK, render_gate, render_pages
from exporter.report.rows.gate_rows import GateFacts, build_gate_rows
from exporter.report.site import render_site, render_site_files
from tests.unit.factory import (
    make_artifact,
    make_manifest,
    make_many,
    make_record,
    make_run,
    make_spec,
)
from tests.unit.report.hostile_records import HOSTILE
from tests.unit.report.rendering import Page

OPSETS = (9, 10, 18, 19)
MANIFEST = make_manifest(
    make_spec("alexnet", opsets=OPSETS, description="AlexNet", tags=("vision",), owner="vision"),
    make_spec("dcgan", opsets=OPSETS, devices=("cpu", "cuda")),
)
REFUSED = CheckResult(check="parity", status=Status.FAIL, message="off", metrics={"max_abs": 0.5})
RECORDS = [
    *(make_record(f"alexnet/{opset}/cpu") for opset in OPSETS),
    make_record(
        "dcgan/9/cpu", "error", message="no Foo", detail="Traceback\n```\nEnd", log="l.log"
    ),
    make_record("dcgan/10/cpu", "xfail", message="no Foo", foreseen="too old"),
    make_record("dcgan/18/cpu", "fail", check="parity", checks=(REFUSED,), notes=("a note",)),
    make_record("dcgan/18/cuda", "unavailable", message="no GPU here"),
    make_record("dcgan/9/cuda", "skip", message="too slow"),
]
FINDINGS = compare_results(Baseline(), make_run(*RECORDS), [RECORDS[0].cell])


def hostile_reasons(text: str) -> dict[str, object]:
    """Return a diagnosis with `text` as all names and lines."""
    return {
        "advice": (text,),
        "obstacles": (text,),
        "missing": (MissingOperator(operator=text, count=1, sources=(text,)),),
        "blame": Blame(
            culprit=Culprit.EXPORTER,
            sample=text,
            evidence=(text,),
            first=Divergence(
                node=text,
                operator=text,
                output=text,
                against=text,
                source=text,
                error_before=0.0,
                error_after=1.0,
            ),
        ),
    }


def hostile_project(text: str, model: str = "alexnet") -> tuple[Manifest, RunRecord]:
    """Return a project with `text` in each free text."""
    harmless = text.encode("utf-8", "replace").decode()  # JSON has no lone surrogates
    device = harmless.replace("/", "") or "cpu"
    spec = make_spec(
        model,
        opsets=OPSETS,
        devices=(device,),
        description=harmless,
        owner=harmless,
        tags=(harmless, harmless),
        manifest=harmless,
        source=harmless,
        init={"name": harmless},
        options={"name": harmless},
        constants=(Constant(at=harmless, value=harmless),),
        inputs=(Input(name=harmless, shape=(harmless, 3), dtype=harmless, at=harmless),),
        outputs=(Output(name=harmless, shape=(harmless,), dtype=harmless),),
        axes=(Axis(name=harmless, example=3),),
        cases=(Case(name=harmless, fills={"n": Fill(kind="value", value=1)}),),
    )
    check = CheckResult(
        check=harmless, status=Status.FAIL, message=harmless, metrics={harmless: harmless}
    )
    fields = {
        "message": harmless,
        "detail": harmless,
        "log": harmless,
        "notes": (harmless,),
        **hostile_reasons(harmless),
    }
    records = [
        make_record(
            f"{model}/{opset}/{device}",
            status,
            check=harmless,
            foreseen=harmless if status == "xfail" else "",
            expectation=harmless if status == "fail" else "",
            checks=(check,),
            route=Route(exporter="dynamo", capture="export", reason=harmless),
            artifact=make_artifact(model, opset, operators={harmless: 1}),
            **fields,
        )
        for opset, status in zip(OPSETS[:3], ("fail", "xfail", "unavailable"), strict=True)
    ]
    project = Project(root="/project", devices=(Device(name=device, runtime="onnxruntime"),))
    run = make_run(*records, tools={harmless: harmless})
    return Manifest(project=project, models=(spec,)), run


def rendered(text: str) -> dict[str, Page]:
    manifest, run = hostile_project(text)
    findings = compare_results(Baseline(), run, run.by_cell())
    context = GateFacts(manifest=manifest, records=run.by_cell())
    gate = render_gate(build_gate_rows(findings, context), manifest.project)
    pages = {**render_pages(manifest, run), "gate.md": gate}
    return {name: Page.of(page) for name, page in pages.items() if name.endswith(".md")}


PLAIN = rendered("plain")


#: The start and the end of a folded part of a page, and the end of a line in a cell.
_FOLD = re.compile(r"<br>|</details>\n|<details><summary>(<b>[\w: ]+</b>|\d+ more)</summary>\n")


def hide_files(page: Page) -> list[str]:
    """Return the links, with those to files of the project as one text if they are quoted."""
    return [re.sub(r"^\.\./\.\./[\w.~%/-]*(#L1)?$", "file", link) for link in page.links]


_DIGESTS = "<!-- Digests: results 0, cells 0 -->\n"


def hide_digests(page: Page) -> list[str]:
    return [re.sub(r"(results|cells) [0-9a-f]{16}\b", r"\1 0", each) for each in page.html]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_structure(text: str) -> None:
    for name, page in rendered(text).items():
        plain = PLAIN[name]
        html, expected = hide_digests(page), {"gate.md": [], "COMPATIBILITY.md": [MARK, _DIGESTS]}
        assert html == hide_digests(plain)
        assert [each for each in html if not _FOLD.fullmatch(each)] == expected.get(name, [MARK])
        assert hide_files(page) == hide_files(plain)
        assert page.count("image") == page.count("s_open", "em_open") == 0
        assert page.count("strong_open") == plain.count("strong_open")
        assert len(page.headings) == len(plain.headings)
        assert [len(row) for row in page.rows] == [len(row) for row in plain.rows]
        for block in ("list_item_open", "table_open", "fence", "code_block", "blockquote_open"):
            assert page.count(block) == plain.count(block)


@given(st.text(st.sampled_from("|`*_~[]()<>!#+-=.:&\\\"' \n\t\u202eab1"), min_size=1))
def test_no_random_text_becomes_structure(text: str) -> None:
    page, plain = rendered(f"x{text}")["models/alexnet.md"], PLAIN["models/alexnet.md"]
    assert page.html == plain.html
    assert hide_files(page) == hide_files(plain)
    assert [len(row) for row in page.rows] == [len(row) for row in plain.rows]
    assert len(page.headings) == len(plain.headings)
    assert page.count("fence") == plain.count("fence")


@settings(max_examples=20)
@given(st.permutations(RECORDS))
def test_the_same_records_give_the_same_bytes(records: list[Record]) -> None:
    assert render_pages(MANIFEST, make_run(*records)) == render_pages(MANIFEST, make_run(*RECORDS))


def test_a_page_does_not_depend_on_machine_or_time() -> None:
    fields = {
        "message": "/home/ci/work/build/alexnet/18.onnx failed at 0x7f3120aa",
        "detail": 'File "/home/ci/venv/lib/python3.11/site-packages/torch/onnx/x.py", line 1',
        "seconds": {"capture": 12.345},
        "fingerprint": {"entry": "f00dfeed"},
        "log": "alexnet/logs/9.log",
    }
    records = [make_record(f"alexnet/{opset}/cpu", "error", **fields) for opset in OPSETS]
    for text in render_pages(MANIFEST, make_run(*records)).values():
        for foreign in ("/home", "site-packages", "0x7f", "12.345", "f00d", "/project"):
            assert foreign not in text


def test_flaky_cells_have_a_section_on_both_pages() -> None:
    run = make_run(make_record("alexnet/9/cpu", flaky="was fail at parity"))
    pages = render_pages(MANIFEST, run)
    assert "## Flaky" in pages["COMPATIBILITY.md"]
    assert "`alexnet/9/cpu`" in pages["models/alexnet.md"].partition("Two runs with")[2]


def test_the_overview_has_a_table() -> None:
    text = render_pages(MANIFEST, make_run(*RECORDS))["COMPATIBILITY.md"]
    page = Page.of(text)
    symbol = {status: mark.symbol for status, mark in MARKS.items()}
    red, none, gone = (
        MARKS[each].symbol for each in (Status.FAIL, Status.SKIP, Status.UNAVAILABLE)
    )
    error = symbol[Status.ERROR]
    assert ["model", "cpu", "cuda"] in page.rows
    assert ["alexnet", "✅ 9..10, 18..19", ""] in page.rows
    (dcgan,) = [row for row in page.rows if row[:1] == ["dcgan"] and len(row) == 3]
    cpu = f"🟡 10 {red} 18 {error} 9 {NOT_RUN.symbol} 19"
    cuda = f"{gone} 18 {none} 9 {NOT_RUN.symbol} 10, 19"
    assert dcgan == ["dcgan", cpu, cuda]
    assert page.links.count("models/alexnet.md") == 2
    assert page.headings == [
        "Compatibility",
        "Models",
        "Red cells",
        "🟥 error at convert: 1 cell of dcgan",
        "❌ fail at parity: 1 cell of dcgan",
        "Releases and axes",
        "Not run",
        "Expected to fail",
        "Skipped or unavailable",
        "Exporters",
        "Tools",
    ]
    head = "2 models, 2 red; 4 proved, 1 foreseen failure, 2 not run here, 3 without a result."
    assert head in text
    assert [error, "dcgan/9/cpu", "error at convert", "no Foo"] in page.rows
    start = page.paragraphs.index("🟥 error at convert: 1 cell of dcgan")
    assert page.paragraphs[start + 1 : start + 3] == [
        "promised at: manifests/vision.toml:1",
        "reproduce: exporter repro dcgan/9/cpu",
    ]
    assert [symbol[Status.XFAIL], "dcgan/10/cpu", "xfail at convert", "too old"] in page.rows
    assert [symbol[Status.SKIP], "dcgan/9/cuda", "skip", "too slow"] in page.rows
    assert "torch 2.13.0." in page.paragraphs[-1]


def render_with_index(manifest: Manifest, run: RunRecord) -> dict[str, str]:
    """Return the pages in markdown and the one for a browser."""
    index = str(render_site_files(manifest, run)["index.html"])
    return {**render_pages(manifest, run), "index.html": index}


def test_the_page_of_a_model_has_the_code_of_each_red_cell() -> None:
    files = render_with_index(MANIFEST, make_run(*RECORDS))
    assert files["models/dcgan.md"].count("- code: `E-") == 2
    assert "- code:" not in files["models/alexnet.md"]
    assert '"code":"E-convert"' in files["index.html"].replace('": "', '":"')


def test_each_link_of_the_site_has_a_target() -> None:
    text = "<script>alert(1)</script> [x](https://evil.example)"
    records = [make_record("dcgan/18/cpu", "fail", message=text)]
    site = render_site(render_with_index(MANIFEST, make_run(*records)), "commit abc of 2026-11-24")
    assert not [name for name in site if name.endswith(".md")]
    assert '.md"' not in str(site["index.html"])
    assert '<body data-codes="failures.html">' in str(site["index.html"])
    codes = str(site["failures.html"])
    assert not [code for code in FAILURE_CODES if f'id="{code.lower()}"' not in codes]
    for name in ("COMPATIBILITY.html", "models/dcgan.html", "failures.html"):
        page = str(site[name])
        assert "<footer>commit abc of 2026-11-24</footer>" in page
        assert "<script>" not in page
        assert 'evil.example"' not in page
        for link in re.findall(r'href="([^"]+)"', page):
            target, _, anchor = link.partition("#")
            path = os.path.normpath(Path(name).parent / target) if target else name
            assert path in site, link
            assert not anchor or f'id="{anchor}"' in str(site[path])


@pytest.mark.parametrize("url", ["", "https://host.example/acme/nets/blob/abc"])
def test_files_outside_of_the_site_are_links_only_with_a_url(url: str) -> None:
    pages = render_with_index(MANIFEST, make_run(*RECORDS))
    assert "(../../manifests/vision.toml#L1)" in pages["models/alexnet.md"]
    page = str(render_site(pages, "", "reports", url)["models/alexnet.html"])
    link = f'<a href="{url}/manifests/vision.toml#L1"><code>manifests/vision.toml:1</code></a>'
    assert ("manifests/vision.toml#L1" in page) == (link in page) == bool(url)
    assert "<code>manifests/vision.toml:1</code>" in page


SOURCES = ("manifests/vision.toml", "manifests/models/vision.py")


def test_every_link_has_a_target() -> None:
    files = render_with_index(MANIFEST, make_run(*RECORDS))
    for name, text in files.items():
        if not name.endswith(".md"):
            continue
        page = Page.of(text)
        slugs = {
            "#" + re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
            for heading in page.headings
        }
        for link in page.links:
            if link.startswith("#"):
                assert link in slugs
            else:
                folder = Path("reports") / Path(name).parent
                target = os.path.normpath(folder / link.partition("#")[0])
                assert target.removeprefix("reports/") in files or target in SOURCES


def test_green_projects_have_no_section_of_failures() -> None:
    manifest = make_manifest(make_spec(opsets=(18,)))
    files = render_pages(manifest, make_run(make_record("alexnet/18/cpu")))
    assert Page.of(files["COMPATIBILITY.md"]).headings == [
        "Compatibility",
        "Models",
        "Releases and axes",
        "Exporters",
        "Tools",
    ]
    assert "## Failures" not in files["models/alexnet.md"]


def test_cells_without_results_are_not_green() -> None:
    files = render_pages(MANIFEST, make_run())
    assert "2 models, 0 red; 0 proved, 12 without a result." in files["COMPATIBILITY.md"]
    assert MARKS[Status.PASS].symbol not in files["COMPATIBILITY.md"]
    assert MARKS[Status.PASS].symbol not in files["models/alexnet.md"]


def test_the_page_of_a_model_has_all_sections() -> None:
    text = render_pages(MANIFEST, make_run(*RECORDS))["models/dcgan.md"]
    page = Page.of(text)
    assert page.headings == [
        "dcgan",
        "Failures",
        "🟥 dcgan/9/cpu: error at convert",
        "❌ dcgan/18/cpu: fail at parity",
        "Inputs and outputs",
        "Files",
        "Cells",
        "Other outcomes",
        "⏩ dcgan/9/cuda: skip",
        "🟡 dcgan/10/cpu: xfail at convert",
        "⬜ dcgan/10,19/cuda: not run",
        "🚫 dcgan/18/cuda: unavailable at load",
        "⬜ dcgan/19/cpu: not run",
        "Checks on cpu",
    ]
    folds = ("Contract", "Runtimes", "Checks", "Operators", "Notes")
    assert page.html[1:] == [
        line
        for name in folds
        for line in (f"<details><summary><b>{name}</b></summary>\n", "</details>\n")
    ]
    assert ["image", "float32", "[batch, 3, 224, 224]"] in page.rows
    assert ["image", "args[0]", "normal"] in page.rows
    assert ["parity", "❌", "off", "max_abs 0.5"] in page.rows
    assert "`exporter export 'dcgan/9/cpu'`" in text
    assert "`build/l.log`" in text
    assert [token.content for token in page.tokens if token.type == "fence"] == [
        "Traceback\n```\nEnd\n"
    ]


def render_findings(*findings: GateFinding, templates: Path = Path("templates")) -> str:
    """Return the gate's page with a project's own templates."""
    project = MANIFEST.project.model_copy(update={"templates": str(templates)})
    return render_gate(build_gate_rows(findings, GateFacts(manifest=MANIFEST)), project)


def test_a_project_overrides_a_template_by_file(tmp_path: Path) -> None:
    (tmp_path / "gate.md.jinja").write_text("{{ gate.findings[0].message }}")
    finding = replace(FINDINGS[0], message="<|>")
    assert render_findings(finding, templates=tmp_path) == "&#60;&#124;&#62;"
    packaged = render_pages(MANIFEST, make_run(*RECORDS))
    assert render_pages(MANIFEST, make_run(*RECORDS), tmp_path) == packaged
    assert render_findings(templates=tmp_path / "missing") == render_findings()


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (b"\xff\xfe\xff", r"gate\.md\.jinja: .*utf-8"),
        (b"one\n{{ page.nothing }}", r"gate\.md\.jinja:2: .*'page' is undefined"),
        (b"one\ntwo\n{% for %}", r"gate\.md\.jinja:3: "),
        (b"{{ gate|nothing }}", r"gate\.md\.jinja:1: .*No filter named 'nothing'"),
        (b"{% include 'other.md' %}", r"other\.md: "),
        (b"\n{{ gate.counts + 'x' }}", r"gate\.md\.jinja:2: .*unsupported operand"),
    ],
)
def test_an_invalid_template_is_named_with_its_line(
    template: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / "gate.md.jinja").write_bytes(template)
    with pytest.raises(ExporterError, match=message) as caught:
        render_findings(templates=tmp_path)
    assert caught.value.exit_code is ExitCode.MANIFEST


def test_the_work_is_linear_in_the_cells() -> None:
    render_pages(MANIFEST, make_run())  # compile the templates
    few, many = (_calls(models) for models in (10, 80))
    assert many < 8 * few * 1.1


def _calls(models: int) -> int:
    """Return the number of function calls to render models with 13 cells each."""
    profile = cProfile.Profile()
    files = profile.runcall(render_with_index, *make_many(models))
    assert len(files) == models + 2
    return sum(entry.callcount for entry in profile.getstats())


def test_models_with_initial_weights_are_marked() -> None:
    drawn = {"notes": (f"{INITIAL_WEIGHTS} of seed 0",)}
    manifest = make_manifest(make_spec("drawn", opsets=(18,)), make_spec("loaded", opsets=(18,)))
    run = make_run(make_record("drawn/18/cpu", **drawn), make_record("loaded/18/cpu"))
    page = render_pages(manifest, run)["COMPATIBILITY.md"]
    assert "2 models, 1 with initial weights, 0 red; 2 proved" in page
    assert "[drawn](models/drawn.md)&nbsp;🎲 |" in page
    assert "[loaded](models/loaded.md) |" in page
    context = GateFacts(manifest=manifest, records=run.by_cell())
    gate = render_gate(build_gate_rows((), context), manifest.project)
    assert "Not trained, with initial values as weights: `drawn`." in gate
    assert "May merge" in gate
    (added, _) = compare_results(Baseline(), run, [*run.by_cell()])
    assert added.message == "weights: initial values of seed 0"
