"""`exporter gate`: holds the results against the accepted baseline."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from exporter.build import BuildFolder
from exporter.cli.options.selection import root_option
from exporter.cli.output.findings import format_hints, show_findings
from exporter.cli.output.github import Annotation, annotate, shorten_page
from exporter.cli.output.terminal import print_error, print_line
from exporter.cli.workflows.results import read_results
from exporter.core.atomic_files import write_text
from exporter.core.errors import ExitCode
from exporter.core.git import find_last_change
from exporter.core.text_format import pluralize
from exporter.gate import (
    GateFinding,
    ProjectState,
    select_blocking,
    compare_results,
    compare_with_revision,
)
from exporter.manifest import Manifest, load_project
from exporter.planning.plan import make_plan
from exporter.records.baseline import Baseline, read_baseline
from exporter.records.record import RunRecord
from exporter.report import group_findings, render_gate
from exporter.report.rows.finding_context import GateContext, find_context

#: GitHub drops a step summary that is larger than 1 MiB, and refuses a longer comment; in bytes.
_SUMMARY_LIMIT, _COMMENT_LIMIT = 1_000_000, 65_000
#: By which a job finds the comment that it wrote before.
_COMMENT = "<!-- exporter gate -->\n"


@click.command()
@root_option
@click.option(
    "--against",
    metavar="REVISION",
    help="Take baseline and policy from git: from the last commit shared with this revision.",
)
def command(root: Path, against: str | None) -> int:
    """Compare results and baseline: what is not accepted fails."""
    manifest = load_project(root)
    results = read_results(manifest)
    if against is None:
        found = _at_hand(manifest, results.run)
    else:
        found = _against(manifest, results.run, against)
    if not found.baseline.has_figures:
        print_error("warning: the baseline lacks figures: not all drift is found; accept anew")
    known = GateContext(
        manifest=manifest, records=results.run.by_cell(), accepted_in=found.accepted_in
    )
    return _told(known, found.findings, len(found.baseline.cells))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What a gate found, and what it held the results against."""

    baseline: Baseline
    accepted_in: str
    """The commit of the baseline and its day; empty where it is not committed."""
    findings: tuple[GateFinding, ...]


def _at_hand(manifest: Manifest, run: RunRecord) -> _Found:
    """The baseline of the work tree, and what differs from it."""
    path = _path(manifest)
    baseline = read_baseline(path)
    findings = compare_results(baseline, run, _planned(manifest), manifest.project.gate)
    commit = find_last_change(path, dict(os.environ)) if findings else None
    return _Found(baseline=baseline, accepted_in=str(commit or ""), findings=findings)


def _planned(manifest: Manifest) -> frozenset[str]:
    return frozenset(str(planned.cell) for planned in make_plan(manifest).cells)


def _path(manifest: Manifest) -> Path:
    return Path(manifest.project.root) / manifest.project.reports / "baseline.json"


def _against(manifest: Manifest, run: RunRecord, revision: str) -> _Found:
    """The baseline of the revision, and what differs from it."""
    from exporter.cli.workflows.revision import side_of

    then = side_of(manifest, revision)
    path = _path(manifest)
    own = read_baseline(path) if path.exists() else Baseline(tools={}, cells=())
    now = ProjectState(manifest=manifest, baseline=own)
    return _Found(
        baseline=then.side.baseline,
        accepted_in=then.accepted_in,
        findings=compare_with_revision(then.side, now, run, _planned(manifest)),
    )


def _told(known: GateContext, findings: Sequence[GateFinding], cells: int) -> ExitCode:
    manifest = known.manifest
    page = render_gate(findings, Path(manifest.project.root) / manifest.project.templates, known)
    build = BuildFolder.from_project(manifest.project)
    write_text(build.path / "gate.md", page)
    write_text(build.path / "comment.md", shorten_page(_COMMENT + page, _COMMENT_LIMIT))
    append_to_step_summary(page)
    annotate(_annotations(known, findings), Path(manifest.project.root))
    if not findings:
        print_line(f"{pluralize(cells, 'cell')} as accepted", color="green")
        return ExitCode.OK
    show_findings(findings, known)
    print_line(
        f"{pluralize(len(findings), 'finding')}; written to {manifest.project.build}/gate.md"
    )
    if not select_blocking(findings):
        print_line("none of them blocks", color="green")
        return ExitCode.OK
    print_line("mend what is broken, then accept the rest: `exporter baseline`")
    return ExitCode.RED


def _annotations(known: GateContext, findings: Sequence[GateFinding]) -> Iterator[Annotation]:
    """One for each group that is alike but for the opset, at the model's entry."""
    entries = {spec.id: spec.location for spec in known.manifest.models}
    for alike in group_findings(findings):
        finding = alike.first
        change = f"{finding.before} -> {finding.after}"
        said = f"{change}: {finding.message}" if finding.message else change
        yield Annotation(
            level="error" if finding.blocks else "warning",
            title=f"{alike.label}: {finding.kind}",
            message=". ".join((said, *format_hints(find_context(alike.members, known)))),
            location=entries.get(finding.cell.model),
        )


def append_to_step_summary(page: str) -> None:
    """Adds the findings to the summary that GitHub shows for a step, where there is one."""
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(shorten_page(page, _SUMMARY_LIMIT))
