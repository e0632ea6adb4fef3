"""`exporter gate`: compare the results with the accepted baseline."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click

from exporter.api import gate_run
from exporter.cli.options import json_option, root_option
from exporter.cli.output.tables import open_project, print_result_notes, show_findings
from exporter.cli.output.terminal import print_document, print_error
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import write_text
from exporter.core.git import find_commit_url
from exporter.gate.finding import GateFinding
from exporter.pipeline.build_folder import BuildFolder
from exporter.plugins import github
from exporter.report.pages.page_files import render_gate
from exporter.report.rows.gate_rows import GateRows, build_finding_rows, build_gate_rows

#: GitHub rejects a longer comment; in bytes. The job adds the commit.
_COMMENT_LIMIT = 65_000
#: The marker by which a job finds its earlier comment.
_COMMENT = "<!-- exporter gate -->\n"
_NO_VERDICT = "# Gate\n\nNo verdict: the results cannot be compared with the baseline."


@click.command()
@root_option
@click.option(
    "--against",
    metavar="REVISION",
    help="Use baseline and policy of the last common commit with this revision of git.",
)
@json_option(GateRows)
def gate(root: Path, against: str | None, *, as_json: bool) -> int:
    """Compare results and baseline; fail on unaccepted changes."""
    manifest = open_project(root)
    build = BuildFolder.from_project(manifest.project).path
    try:
        result = gate_run.gate(manifest, os.environ, against)
    except ExporterError as error:
        # The page of an earlier run would be a false verdict.
        _write_pages(build, github.format_problems(error.problems, _NO_VERDICT))
        raise
    print_result_notes(result.current)
    context = result.context
    if context.revision:
        print_error(f"compared with {context.revision}")
    elif not context.baseline.has_contracts:
        print_error(
            "warning: the baseline has an older format, so edited entries are not compared; run "
            "`exporter baseline` to accept the results again"
        )
    rows = build_gate_rows(result.findings, context, result.accepted)
    project_root = Path(manifest.project.root)
    page = render_gate(rows, manifest.project, find_commit_url(project_root, os.environ))
    _write_pages(build, page)
    github.append_to_step_summary(page)
    if as_json:
        print_document(rows)
    else:
        github.annotate(_make_annotations(result), project_root)
        show_findings(gate=rows)
    if result.is_passed and manifest.problems:
        return ExitCode.MANIFEST
    return ExitCode.OK if result.is_passed else ExitCode.RED


def _make_annotations(result: gate_run.GateResult) -> Iterator[github.Annotation]:
    """Yield one annotation for each model and for each setting, at the edited line."""
    entries = {spec.id: spec.location for spec in result.context.manifest.models}
    groups: dict[object, list[GateFinding]] = {}
    for each in result.findings:
        groups.setdefault(each.setting or each.cell.model, []).append(each)
    for group in groups.values():
        rows = build_finding_rows(group, result.context)
        first, titles = rows[0], [f"{row.subject}: {row.title}" for row in rows]
        level: github.Level = "error" if any(row.is_blocking for row in rows) else "warning"
        is_better = all(each.is_improvement for each in group)
        also = [f"also {title}" for title in titles[1:]]
        places = f"promised at {', '.join((*first.locations, *first.lines))}"
        texts = (first.change, first.cause, first.message, places, first.acceptance, first.decision)
        yield github.Annotation(
            level="notice" if is_better else level,
            title=titles[0],
            message=". ".join(filter(None, (*texts, *first.commands, *also))),
            location=group[0].location or entries.get(group[0].cell.model),
        )


def _write_pages(build: Path, page: str) -> None:
    """Write the page, and the form of it that fits into a comment of a pull request."""
    try:
        write_text(build / "gate.md", page)
        write_text(build / "comment.md", github.shorten_page(_COMMENT + page, _COMMENT_LIMIT))
    except ExporterError as error:  # the checkout is read-only
        print_error(f"warning: {error}; the verdict is not written to a page")
