"""`exporter gate`: compare the results with the accepted baseline."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import click
from pydantic import Field

from exporter.api import gate_run
from exporter.cli.options import json_option, root_option
from exporter.cli.output import github
from exporter.cli.output.tables import (
    format_hints,
    format_initial_weights,
    open_project,
    print_result_notes,
    show_findings,
)
from exporter.cli.output.terminal import print_document, print_error, print_line
from exporter.core.errors import ExitCode, ExporterError, Location
from exporter.core.files import write_text
from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.text import pluralize
from exporter.gate.finding import GateFinding
from exporter.pipeline.build_folder import BuildFolder
from exporter.report.pages.page_files import render_gate
from exporter.report.rows import failures

#: GitHub rejects a longer comment; in bytes. The job adds the commit.
_COMMENT_LIMIT = 65_000
#: The marker by which a job finds its earlier comment.
_COMMENT = "<!-- exporter gate -->\n"
_NO_VERDICT = "# Gate\n\nNo verdict: the results cannot be compared with the baseline."


class Finding(FrozenModel):
    """A difference between the results and the baseline."""

    kind: str
    cells: Items[str]
    is_blocking: bool
    is_improvement: bool
    before: str
    after: str
    message: str
    cause: str = Field(description="The edits since the acceptance, or empty.")
    code: str = Field(description="The code of the failure, such as `E-axis-fixed`, or empty.")
    locations: Items[str] = Field(description="FILE:LINE of the entries or of the setting.")
    commands: Items[str] = Field(description="Commands that run or reproduce the first cell.")


class GateDocument(FrozenModel):
    """The verdict of the gate: `gate --json`."""

    format: Literal[1] = 1
    is_passed: bool = Field(description="False if a finding blocks, or a manifest is invalid.")
    revision: str = Field(description="The revision of `--against` with its commit, or empty.")
    problems: Items[str] = Field(description="Problems of manifests, whose models are unknown.")
    missing: dict[str, str] = Field(description="The cells without a result, with the reason.")
    findings: Items[Finding] = Field(description="The worst first.")
    accepted: Items[Finding] = Field(
        description="With `--against`: what the baseline of the branch accepts."
    )


@click.command()
@root_option
@click.option(
    "--against",
    metavar="REVISION",
    help="Use baseline and policy of the last common commit with this revision of git.",
)
@json_option(GateDocument)
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
    if result.revision:
        print_error(f"compared with {result.revision}")
    if not result.revision and not result.baseline.has_contracts:
        print_error(
            "warning: the baseline has an older format, so edited entries are not compared; run "
            "`exporter baseline` to accept the results again"
        )
    findings = result.findings
    context = failures.GateContext(
        manifest=manifest,
        records=result.current.results.run.by_cell(),
        accepted_in=result.accepted_in,
    )
    project_root = Path(manifest.project.root)
    templates = project_root / manifest.project.templates
    page = render_gate(findings, templates, context, result.accepted)
    _write_pages(build, page)
    github.append_to_step_summary(page)
    if as_json:
        document = _make_document(result, context)
        print_document(document)
        red = ExitCode.MANIFEST if result.is_passed else ExitCode.RED
        return ExitCode.OK if document.is_passed else red
    github.annotate(_make_annotations(context, findings), project_root)
    for line in format_initial_weights(context.records.values()):
        print_error(line)
    if result.accepted:
        print_line(f"accepted in this branch since {result.revision}:")
        show_findings(result.accepted)
    if findings:
        show_findings(findings, context)
        count = pluralize(len(findings), "finding")
        print_line(f"{count}; written to {manifest.project.build}/gate.md")
    if not result.is_passed:
        print_line("fix the failures, then run `exporter baseline` to accept the rest")
        return ExitCode.RED
    if manifest.problems:
        print_line("a manifest file has a problem, so its models are unknown", color="red")
        return ExitCode.MANIFEST
    cells = f"{pluralize(len(context.records), 'cell')} as accepted"
    print_line("no finding blocks the merge" if findings else cells, color="green")
    return ExitCode.OK


def _make_document(result: gate_run.GateResult, context: failures.GateContext) -> GateDocument:
    problems = tuple(str(problem) for problem in context.manifest.problems)
    missing = result.current.results.missing
    return GateDocument(
        is_passed=result.is_passed and not problems,
        revision=str(result.revision or ""),
        problems=problems,
        missing={str(cell): reason for cell, reason in missing.items()},
        findings=tuple(_describe_finding(finding, context) for finding in result.findings),
        accepted=tuple(_describe_finding(finding, context) for finding in result.accepted),
    )


def _describe_finding(finding: GateFinding, context: failures.GateContext) -> Finding:
    facts = failures.find_context([finding], context)
    locations = (facts.settings,) if facts.settings else facts.locations
    return Finding.from_fields(
        finding,
        cells=tuple(map(str, finding.cells)),
        cause=str(finding.cause or ""),
        code=facts.code,
        locations=locations,
        commands=tuple(filter(None, (facts.export_command, facts.repro_command))),
    )


def _make_annotations(
    context: failures.GateContext, findings: Sequence[GateFinding]
) -> Iterator[github.Annotation]:
    """Yield one annotation for each group that differs only in the opset."""
    entries = {spec.id: spec.location for spec in context.manifest.models}
    for group in failures.group_findings(findings):
        finding = group.first
        change = f"{finding.before} -> {finding.after}"
        text = f"{change}: {finding.reason}" if finding.reason else change
        yield github.Annotation(
            level="error" if finding.is_blocking else "warning",
            title=f"{failures.name_subject(group)}: {finding.kind}",
            message=". ".join((text, *format_hints(failures.find_context(group.members, context)))),
            location=_find_location(finding) or entries.get(finding.cell.model),
        )


def _write_pages(build: Path, page: str) -> None:
    """Write the page, and the form of it that fits into a comment of a pull request."""
    try:
        write_text(build / "gate.md", page)
        write_text(build / "comment.md", github.shorten_page(_COMMENT + page, _COMMENT_LIMIT))
    except ExporterError as error:  # the checkout is read-only
        print_error(f"warning: {error}; the verdict is not written to a page")


def _find_location(finding: GateFinding) -> Location | None:
    """Return the edited line that causes the finding, if it is known."""
    if finding.setting:
        return finding.setting.location
    return finding.cause.location if finding.cause else None
