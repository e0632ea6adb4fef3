"""`exporter gate`: compare the results with the accepted baseline."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any, Literal

import click
from typing_extensions import override

from exporter.api import gate_run
from exporter.cli.options import json_option, root_option, weights_option
from exporter.cli.output import github
from exporter.cli.output.tables import (
    open_project,
    print_file_notes,
    print_result_notes,
    show_findings,
)
from exporter.cli.output.terminal import print_document, print_error
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text import join_names
from exporter.gate.approvals import Reviews, read_reviews
from exporter.pipeline.build_folder import BuildFolder
from exporter.report.pages.markdown import render_gate
from exporter.report.rows.gate_rows import GateRows, build_gate_rows

_NO_VERDICT = "# Gate\n\nNo verdict: the results cannot be compared with the baseline."
#: Asks the host of the job, in place of reading a file.
_HOST = "host"


class _Approvals(click.File):
    """A file with the reviews, or the host of the job."""

    @override
    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return value if value == _HOST else super().convert(value, param, ctx)


@click.command()
@root_option
@click.option(
    "--against",
    metavar="REVISION",
    help="Use the baseline of the last common commit with this revision of git, and its policy.",
)
@click.option(
    "--approvals",
    type=_Approvals(encoding="utf-8"),
    help=(
        "`host` to ask GitHub or GitLab for the reviews of the pull request, or a file with the "
        "answer of another host, as JSON; - for standard input."
    ),
)
@weights_option
@json_option(GateRows)
def gate(
    root: Path,
    against: str | None,
    approvals: IO[str] | Literal["host"] | None,
    weights: str | None,
    *,
    as_json: bool,
) -> int:
    """Compare results and baseline; fail on unaccepted changes."""
    if approvals and against is None:
        raise ExporterError(ExitCode.MANIFEST, "--approvals: needs --against; add it")
    manifest = open_project(root, initial_weights=weights is not None)
    build = BuildFolder.from_project(manifest.project)
    try:
        reviews, unknown = find_reviews(approvals)
        result = gate_run.gate(manifest, os.environ, against, reviews)
    except ExporterError as error:
        # The page of an earlier run would be a false verdict.
        github.write_pages(build, github.format_problems(error.problems, _NO_VERDICT))
        raise
    print_result_notes(result.current)
    if unknown and not result.is_passed:
        print_error(f"warning: {unknown}")
    facts = result.context
    if facts.revision:
        print_error(f"compared with {facts.revision}")
    elif names := facts.baseline.without_contract:
        print_error(
            f"warning: the baseline has no contract of {join_names(names)}, because the entry was "
            "invalid, so edits of the entry are not compared; run `exporter baseline` to accept "
            "the results again"
        )
    rows = build_gate_rows(result.findings, facts, result.accepted)
    project_root = Path(manifest.project.root)
    page = render_gate(rows, manifest.project, github.find_commit_url(project_root, os.environ))
    github.write_pages(build, page)
    github.append_to_step_summary(page)
    if as_json:
        print_document(rows)
    else:
        github.annotate(github.describe_gate(result), project_root)
        show_findings(gate=rows)
        print_file_notes(manifest, os.environ, result.current.run.records)
    if result.is_passed and manifest.problems:
        return ExitCode.MANIFEST
    return ExitCode.OK if result.is_passed else ExitCode.RED


def find_reviews(approvals: IO[str] | Literal["host"] | None) -> tuple[Reviews | None, str]:
    """Return the reviews of the pull request, and why the host has none that are known."""
    if approvals is None:
        return None, ""
    if not isinstance(approvals, str):
        return read_reviews(approvals), ""
    from exporter.gate.review_hosts import TOKENS, fetch_reviews  # 30 ms, with urllib

    try:
        return fetch_reviews(os.environ), ""
    except ExporterError as error:
        return None, str(error)
    finally:
        for name in TOKENS:
            os.environ.pop(name, None)
