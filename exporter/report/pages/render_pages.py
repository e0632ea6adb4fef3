"""The files of a report, as text; nothing is written here.

In: a `Manifest`, a `RunRecord` and the findings of the gate. Out: relative file name -> text. The
same in gives the same out, byte for byte, whatever the order of the records.

jinja2 is imported when something is rendered: whoever only folds opsets does not wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from exporter.gate import GateFinding
from exporter.manifest import Manifest, Style
from exporter.records.audit import Audit
from exporter.records.record import RunRecord
from exporter.report.pages.browser_data import index_data
from exporter.report.pages.model_page import model_page
from exporter.report.pages.overview import overview
from exporter.report.rows.acceptance import AcceptanceHistory
from exporter.report.rows.cells import cells_by_model
from exporter.report.rows.failure_clusters import cluster_findings
from exporter.report.rows.finding_context import FindingContext, GateContext, lead_of
from exporter.report.rows.runtime_support import Support

OVERVIEW = "COMPATIBILITY.md"
INDEX = "index.html"
#: Of the overview, and of a model.
_TEMPLATES = ("compatibility.md", "model.md")
#: The folder of the models' pages. Only files that begin with `MARK` are ours there.
PAGES = "models"
MARK = (
    "<!-- Written by `exporter report` from the results: what you change here will be lost. -->\n"
)


def render_reports(
    manifest: Manifest,
    run: RunRecord,
    findings: Sequence[GateFinding] | None = None,
    templates: Path | None = None,
    audits: Mapping[str, Sequence[Audit]] | None = None,
    past: AcceptanceHistory | None = None,
) -> dict[str, str]:
    """Every page of the report.

    Args:
        manifest: What is promised; promises without a record are shown as not run.
        run: What was found; records of cells that are no longer promised are left out.
        findings: What the gate found, to be listed in the overview; None or empty: no such list.
        templates: The project's own templates; need not exist.
        audits: The last audits of each model's cells, by model.
        past: What was accepted before; None: nothing is said of it.

    Returns:
        Text by file name relative to the reports folder: `COMPATIBILITY.md`, `index.html`,
        `models/<id>.md`.

    Raises:
        ExporterError: MANIFEST, where a template is wrong.
    """
    from exporter.report.pages.browser_page import index_html
    from exporter.report.pages.templates import RenderOptions, render

    past = past or AcceptanceHistory()
    page = overview(manifest, run, findings, past)
    spoken = RenderOptions(style=manifest.project.style, command=manifest.project.command)
    by_model = cells_by_model(manifest, run)
    files = {
        OVERVIEW: MARK + "\n" + render(_TEMPLATES[0], templates, spoken, page=page),
        INDEX: index_html(index_data(manifest, run, by_model, past), templates),
    }
    support: dict[str, list[Support]] = {}
    for row in page.support:
        support.setdefault(row.model, []).append(row)
    for spec in manifest.models:
        cells, runs = by_model[spec.id], support.get(spec.id, ())
        audited = (audits or {}).get(spec.id, ())
        view = model_page(spec, cells, manifest.project, past, audited, runs)
        text = render(_TEMPLATES[1], templates, spoken, page=view)
        files[f"{PAGES}/{spec.id}.md"] = f"{MARK}\n{text}"
    return files


def prepare_pages(templates: Path | None, style: Style, command: str) -> None:
    """Reads the templates of the pages, so that `render_reports` has them at hand."""
    from exporter.report.pages.templates import RenderOptions, prepare

    for name in _TEMPLATES:
        prepare(name, templates, RenderOptions(style=style, command=command))


def render_gate(
    findings: Sequence[GateFinding], templates: Path | None = None, known: GateContext | None = None
) -> str:
    """The findings of the gate as markdown, the worst first; says so where there are none.

    Args:
        findings: What the gate found.
        templates: The project's own templates; need not exist.
        known: Where models are promised, what was found, and since when; None: not told.

    Raises:
        ExporterError: MANIFEST, where a template is wrong.
    """
    from exporter.report.pages.templates import PLAIN, RenderOptions, render

    news = [finding for finding in findings if finding.is_good_news]
    others = [finding for finding in findings if not finding.is_good_news]
    losses = cluster_findings([finding for finding in others if finding.blocks])
    warned = [finding for finding in others if not finding.blocks]
    spoken = RenderOptions(command=known.manifest.project.command) if known else PLAIN
    return render(
        "gate.md",
        templates,
        spoken,
        findings=len(findings),
        losses=losses,
        leads=[lead_of(each.findings, known) if known else FindingContext() for each in losses],
        news=cluster_findings(news),
        warned=cluster_findings(warned),
    )
