"""The files of a report, as text; nothing is written here.

In: a `Manifest`, a `RunRecord` and the findings of the gate. Out: relative file name -> text. The
same in gives the same out, byte for byte, whatever the order of the records.

jinja2 is imported when something is rendered: whoever only folds opsets does not wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from exporter.audit.protocol import Audit
from exporter.gate import Finding
from exporter.history import History
from exporter.manifest import Manifest
from exporter.record import RunRecord
from exporter.report.cells import cells_by_model
from exporter.report.clusters import cluster_findings
from exporter.report.consumer import support_of
from exporter.report.index_data import index_data
from exporter.report.model_page import model_page
from exporter.report.overview import overview

OVERVIEW = "COMPATIBILITY.md"
INDEX = "index.html"
#: The folder of the models' pages. Only files that begin with `MARK` are ours there.
PAGES = "models"
MARK = "<!-- Written by `nox -s report` from the results: what you change here will be lost. -->\n"


def render_reports(
    manifest: Manifest,
    run: RunRecord,
    findings: Sequence[Finding] | None = None,
    templates: Path | None = None,
    audits: Mapping[str, Sequence[Audit]] | None = None,
    history: History | None = None,
) -> dict[str, str]:
    """Every page of the report.

    Args:
        manifest: What is promised; promises without a record are shown as not run.
        run: What was found; records of cells that are no longer promised are left out.
        findings: What the gate found, to be listed in the overview; None or empty: no such list.
        templates: The project's own templates; need not exist.
        audits: The last audits of each model's cells, by model.
        history: What was accepted before, for `index.html`.

    Returns:
        Text by file name relative to the reports folder: `COMPATIBILITY.md`, `index.html`,
        `models/<id>.md`.

    Raises:
        ExporterError: MANIFEST, where a template is wrong.
    """
    from exporter.report.index_html import index_html
    from exporter.report.templates import render

    page, style = overview(manifest, run, findings), manifest.project.style
    by_model = cells_by_model(manifest, run)
    files = {
        OVERVIEW: MARK + "\n" + render("compatibility.md", templates, style, page=page),
        INDEX: index_html(index_data(manifest, run, by_model, history or History()), templates),
    }
    for spec in manifest.models:
        cells = by_model[spec.id]
        support = support_of(spec, cells, manifest, run.tools)
        audited = (audits or {}).get(spec.id, ())
        view = model_page(spec, cells, manifest.project.build, audited, support)
        text = render("model.md", templates, style, page=view)
        files[f"{PAGES}/{spec.id}.md"] = f"{MARK}\n{text}"
    return files


def render_gate(findings: Sequence[Finding], templates: Path | None = None) -> str:
    """The findings of the gate as markdown, the worst first; says so where there are none.

    Raises:
        ExporterError: MANIFEST, where a template is wrong.
    """
    from exporter.report.templates import render

    news = [finding for finding in findings if finding.is_good_news]
    others = [finding for finding in findings if not finding.is_good_news]
    losses = [finding for finding in others if finding.blocks]
    warned = [finding for finding in others if not finding.blocks]
    return render(
        "gate.md",
        templates,
        findings=len(findings),
        losses=cluster_findings(losses),
        news=cluster_findings(news),
        warned=cluster_findings(warned),
    )
