"""The pages of a report for people, as text; nothing is written here.

jinja2 is imported only when a page is rendered, because many commands need only rows.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from exporter.core.frozen_model import FrozenModel
from exporter.core.text import replace_invisible
from exporter.gate import GateFinding
from exporter.manifest import Manifest, Style
from exporter.records.baseline import Baseline
from exporter.records.record import RunRecord
from exporter.report.pages.browser_data import IndexData, build_index_data
from exporter.report.pages.model_page import build_model_page
from exporter.report.pages.overview import build_overview
from exporter.report.rows.cells import (
    AcceptanceHistory,
    collect_cells,
    format_changed_tools,
    format_export_tools,
)
from exporter.report.rows.failure_clusters import (
    FindingContext,
    GateContext,
    cluster_findings,
    find_context,
)
from exporter.report.rows.runtime_support import build_support_rows

OVERVIEW = "COMPATIBILITY.md"
INDEX = "index.html"
_OVERVIEW_TEMPLATE, _MODEL_TEMPLATE = "compatibility.md", "model.md"
#: The folder of the models' pages. Only files that begin with `MARK` belong to the report.
PAGES = "models"
MARK = "<!-- Written by `exporter report` from the results; changes here will be lost. -->\n"
#: In JSON, these characters occur only in strings. As escapes, they cannot end the script element.
_ESCAPES = {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def render_pages(
    manifest: Manifest,
    run: RunRecord,
    findings: Sequence[GateFinding] | None = None,
    templates: Path | None = None,
    history: AcceptanceHistory | None = None,
) -> dict[str, str]:
    """Return every page of the report.

    A promise without a record is shown as not run, and records without a promise are ignored. The
    folder `templates` need not exist.

    Returns:
        Text by file name relative to the reports folder: `COMPATIBILITY.md`, `index.html`,
        `models/<id>.md`.

    Raises:
        ExporterError: MANIFEST, if a template is invalid.
    """
    from exporter.report.pages.templates import RenderOptions, render

    history = history or AcceptanceHistory()
    page = build_overview(manifest, run, findings, history)
    options = RenderOptions(style=manifest.project.style, command=manifest.project.command)
    by_model = collect_cells(manifest, run)
    files = {
        OVERVIEW: MARK + "\n" + render(_OVERVIEW_TEMPLATE, templates, options, page=page),
        INDEX: render_index(
            build_index_data(manifest, run, by_model, history), templates, history.commit
        ),
    }
    for spec in manifest.models:
        model_page = build_model_page(
            spec,
            by_model[spec.id],
            manifest.project,
            history,
            build_support_rows(spec, by_model[spec.id], manifest, run.tools),
        )
        text = render(_MODEL_TEMPLATE, templates, options, page=model_page)
        files[f"{PAGES}/{spec.id}.md"] = f"{MARK}\n{text}"
    return files


def render_index(data: IndexData, templates: Path | None, stamp: str = "") -> str:
    """Return `index.html`, which works from a disk and needs no network.

    The content security policy of the page contains the hashes of its script and style. It allows
    no other resources.

    Raises:
        ExporterError: MANIFEST, if a template is invalid.
    """
    from exporter.report.pages.templates import read_template_file, render_html

    script, style = (read_template_file(name, templates) for name in ("index.js", "index.css"))
    rows = ",\n".join(_format_json(row) for row in data.rows)
    return render_html(
        INDEX,
        templates,
        data=f'{{"head":{_format_json(data.head)},\n"rows":[\n{rows}\n]}}',
        summary=data.head.summary,
        export_tools=data.head.export_tools,
        stamp=stamp,
        problems=data.head.problems,
        script=script,
        style=style,
        script_hash=_hash_source(script),
        style_hash=_hash_source(style),
    )


def render_comparison(
    manifest: Manifest, run: RunRecord, before: Baseline, templates: Path | None
) -> str:
    """Return `index.html` of results, with marks at the cells that have another outcome before.

    The folder `templates` need not exist.

    Raises:
        ExporterError: MANIFEST, if a template is invalid.
    """
    by_model = collect_cells(manifest, run)
    data = build_index_data(manifest, run, by_model, AcceptanceHistory(before))
    head = data.head.model_copy(update={"compared_with": "the first file"})
    changes = format_changed_tools(before.tools, run.tools)
    stamp = f"compared with {format_export_tools(before.tools) or 'the first file'}"
    text = f"{stamp}; changed: {changes}" if changes else stamp
    return render_index(data.model_copy(update={"head": head}), templates, text)


def _format_json(value: FrozenModel) -> str:
    text = replace_invisible(value.model_dump_json(exclude_defaults=True))
    for character, escape in _ESCAPES.items():  # ten times as fast as `str.translate`
        text = text.replace(character, escape)
    return text


def _hash_source(text: str) -> str:
    """Return a source expression of Content Security Policy level 3."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def preload_templates(templates: Path | None, style: Style, command: str) -> None:
    """Compile the templates of the pages before `render_pages` needs them."""
    from exporter.report.pages.templates import RenderOptions, preload

    for name in (_OVERVIEW_TEMPLATE, _MODEL_TEMPLATE):
        preload(name, templates, RenderOptions(style=style, command=command))


def render_gate(
    findings: Sequence[GateFinding],
    templates: Path | None = None,
    context: GateContext | None = None,
) -> str:
    """Return the findings of the gate as markdown, the worst first.

    Without a context, which has the manifest, the records and the commit of the baseline, the page
    has no details.

    Raises:
        ExporterError: MANIFEST, if a template is invalid.
    """
    from exporter.report.pages.templates import PLAIN, RenderOptions, render

    others = [finding for finding in findings if not finding.is_improvement]
    regressions = cluster_findings([finding for finding in others if finding.is_blocking])
    options = RenderOptions(command=context.manifest.project.command) if context else PLAIN
    return render(
        "gate.md",
        templates,
        options,
        problems=[str(problem) for problem in context.manifest.problems] if context else [],
        findings=len(findings),
        regressions=regressions,
        contexts=[
            find_context(cluster.findings, context) if context else FindingContext()
            for cluster in regressions
        ],
        improvements=cluster_findings([each for each in findings if each.is_improvement]),
        warnings=cluster_findings([finding for finding in others if not finding.is_blocking]),
    )
