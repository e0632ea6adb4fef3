"""The pages in markdown as text: the overview, the models and the verdict of the gate.

jinja2 is imported only when a page is rendered, because many commands need only rows.
"""

from __future__ import annotations

from pathlib import Path

from exporter.manifest import Manifest, Project
from exporter.records.record import RunRecord, Status
from exporter.report.formats import MARKS
from exporter.report.pages.compatibility import build_overview
from exporter.report.pages.model_page import PAGES, TEMPLATE, build_model_page
from exporter.report.pages.templates import preload, render
from exporter.report.results_digest import format_digests
from exporter.report.rows import matrix
from exporter.report.rows.cells import (
    AcceptanceHistory,
    collect_cells,
)
from exporter.report.rows.gate_rows import GateRows

OVERVIEW = "COMPATIBILITY.md"
_OVERVIEW_TEMPLATE = "compatibility.md"
MARK = "<!-- Written by `exporter report` from the results; changes here will be lost. -->\n"


def render_pages(
    manifest: Manifest,
    run: RunRecord,
    templates: Path | None = None,
    history: AcceptanceHistory | None = None,
) -> dict[str, str]:
    """Return every page of the report in markdown.

    A promise without a record is shown as not run, and records without a promise are ignored. The
    folder `templates` need not exist.

    Returns:
        Text by file name relative to the reports folder: `COMPATIBILITY.md`, `models/<id>.md`.

    Raises:
        ExporterError: MANIFEST, if a template is invalid.
    """
    history, project = history or AcceptanceHistory(), manifest.project
    by_model = collect_cells(manifest, run)
    cells = [cell for each in by_model.values() for cell in each]
    page = build_overview(manifest, run, history, by_model)
    options = (templates, project.style, project.command)
    text = render(_OVERVIEW_TEMPLATE, *options, page=page)
    files = {OVERVIEW: f"{MARK}{format_digests(cells)}\n{text}"}
    for spec in manifest.models:
        support = matrix.build_support_rows(spec, by_model[spec.id], manifest, run.tools)
        values = build_model_page(spec, by_model[spec.id], project, history, support)
        text = render(TEMPLATE, *options, page=values)
        files[f"{PAGES}/{spec.id}.md"] = f"{MARK}\n{text}"
    return files


def preload_pages(project: Project) -> None:
    """Load the templates in advance; rendering reports any problem with them."""
    for name in (_OVERVIEW_TEMPLATE, TEMPLATE):
        preload(name, Path(project.root) / project.templates, project.style, project.command)


def render_gate(rows: GateRows, project: Project, url: str = "") -> str:
    """Return the verdict of the gate as markdown; `url` is that of the project's commit, or "".

    Raises:
        ExporterError: MANIFEST, if a template is invalid.
    """
    templates = Path(project.root) / project.templates
    status = {"blocks": Status.FAIL, "pending": Status.XFAIL}.get(rows.level, Status.PASS)
    values = {"gate": rows, "mark": MARKS[status], "url": url}
    return render("gate.md", templates, project.style, project.command, **values)
