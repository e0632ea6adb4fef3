"""A project's own templates, one at a time, and their description in docs/api.md."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import jinja2
import pytest
from jinja2 import meta

from exporter.records.record import Status
from exporter.report.pages.compatibility import build_overview
from exporter.report.pages.model_page import build_model_page
from exporter.report.pages.templates import _create_environment, find_packaged_templates
from exporter.report.rows.cells import AcceptanceHistory, Row
from tests.integration.project import ROOT, run_exporter
from tests.integration.results import make_green_project, write_results
from tests.unit.factory import make_manifest, make_run, make_spec

DOCS = (ROOT / "docs/api.md").read_text(encoding="utf-8")
#: Templates that a project cannot replace: scripts that must run, and a page without a project.
FIXED_TEMPLATES = {
    *("repro.md", "repro.py", "repro_compare.py", "repro_custom_ops.py", "repro_file.py"),
    "gate.txt",
}


def render(root: Path) -> dict[str, bytes]:
    """Return the pages of the report and the gate."""
    assert run_exporter(root, "report").returncode == 0
    assert run_exporter(root, "report", "--site", "site").returncode == 0
    assert run_exporter(root, "gate").returncode == 1
    pages = (root / "build/gate.md", root / "site/index.html")
    paths = [*(root / "reports").rglob("*.*"), *pages]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """Return a project with its pages; it has two accepted green cells, and one is red now."""
    root = make_green_project(tmp_path_factory.mktemp("rendered") / "project")
    assert run_exporter(root, "baseline").returncode == 0
    write_results(root, _18=Status.FAIL)
    (root / "templates").mkdir()
    return root, render(root)


@pytest.fixture
def project(rendered: tuple[Path, dict[str, bytes]], tmp_path: Path) -> Path:
    """Return a copy of the project."""
    return Path(shutil.copytree(rendered[0], tmp_path / "project"))


OVERRIDDEN = [
    (
        "compatibility.md.jinja",
        "{{ page.green }} of {{ page.cells }}; {{ page.red.clusters[0].reason }}\n",
        "reports/COMPATIBILITY.md",
        "1 of 2; a check failed\n",
    ),
    (
        "model.md.jinja",
        "{{ page.spec.id|code }}: {{ page.failures[0].acceptance }}, {{ page.export_command }}\n",
        "reports/models/net.md",
        "`net`: pass in the baseline, with torch 2.13.0, exporter export 'net/&#42;'\n",
    ),
    (
        "gate.md.jinja",
        (
            "{{ gate.findings[0].kind }} at {{ gate.findings[0].locations[0] }}: "
            '{{ "export"|command|code }}\n'
        ),
        "build/gate.md",
        "newly red at manifests/net.toml:2: `exporter export`\n",
    ),
    (
        "index.html.jinja",
        "<title>{{ summary }}</title>{{ data }}",
        "site/index.html",
        "<title>1 model, 1 red; 1 proved</title>{",
    ),
    ("index.css", "body { color: teal }", "site/index.html", "<style>body { color: teal }<"),
    ("index.js", "show('custom');", "site/index.html", "<script>show('custom');</script>"),
]


def test_a_template_replaces_its_page_until_it_is_removed(
    project: Path, rendered: tuple[Path, dict[str, bytes]]
) -> None:
    before = rendered[1]
    whole = [each for each in OVERRIDDEN if each[0] == "index.html.jinja"]
    parts = [each for each in OVERRIDDEN if each not in whole]  # two are parts of its page
    for replaced in (whole, parts):
        for name, text, *_ in replaced:
            (project / "templates" / name).write_text(text)
        after = render(project)
        assert {path for path in after if after[path] != before[path]} == {
            page for _, _, page, _ in replaced
        }
        for name, _, page, expected in replaced:
            assert expected in after[page].decode()
            (project / "templates" / name).unlink()
    assert render(project) == before


def read_documented_names(heading: str) -> set[str]:
    """Return the names in backticks that begin the rows of the table or list after the heading."""
    rows = re.search(r"(?:^(?:\||- ).*\n)+", DOCS.partition(heading)[2], re.MULTILINE)
    assert rows
    first = [re.split("[|:]", row.lstrip("|"))[0] for row in rows[0].splitlines()]
    return {name for text in first for name in re.findall(r"`(\w+)`", text)}


def test_the_docs_list_every_template_and_its_variables() -> None:
    environment = _create_environment(None)
    variables = {}
    for path in find_packaged_templates().glob("*.jinja"):
        if path.stem not in FIXED_TEMPLATES:
            variables[path.name] = meta.find_undeclared_variables(
                environment.parse(path.read_text())
            )
    rows = re.findall(r"^\| `([\w.]+\.jinja)` \| .* \| (.*) \|$", DOCS, re.MULTILINE)
    assert {name: set(re.findall(r"`(\w+)`", names)) for name, names in rows} == variables


MANIFEST = make_manifest(make_spec())


@pytest.mark.parametrize(
    ("function", "page"),
    [
        ("build_overview", build_overview(MANIFEST, make_run())),
        (
            "build_model_page",
            build_model_page(make_spec(), (), MANIFEST.project, AcceptanceHistory()),
        ),
    ],
)
def test_the_docs_list_every_part_of_a_page(function: str, page: Row) -> None:
    assert read_documented_names(f"(`{function}` in") == page.keys()


def test_the_site_has_the_tables_and_leaves_the_reports(project: Path) -> None:
    before = render(project)
    run_exporter(project, "report", "--site", "site", code=0)
    assert "Compatibility" in (project / "site/COMPATIBILITY.html").read_text("utf-8")
    assert (project / "site/index.html").is_file()
    assert (project / "site/models/net.html").is_file()
    assert render(project) == before


def test_the_docs_list_every_filter() -> None:
    default_filters = jinja2.Environment().filters
    project_filters = {
        name
        for name, item in _create_environment(None).filters.items()
        if default_filters.get(name) is not item
    }
    assert read_documented_names("## Filters") == project_filters
