"""`exporter report`: write the reports from the results, or a static site of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from exporter.api.gate_run import read_results
from exporter.cli.options import root_option, weights_option
from exporter.cli.output.github import find_commit_url
from exporter.cli.output.tables import open_project, print_result_notes
from exporter.cli.output.terminal import print_error, print_line
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import write_bytes
from exporter.core.git import Commit, find_head, list_versions
from exporter.core.text import pluralize
from exporter.manifest import Manifest, find_renames
from exporter.records.baseline import FOLDER, Baseline, CellOutcome, parse_baseline, rename_models
from exporter.records.record import RunRecord
from exporter.report.reports_folder import (
    UNREADABLE_BASELINE,
    ReportPaths,
    read_site_files,
    require_own_files,
    write_reports,
)
from exporter.report.site import render_site


@click.command()
@root_option
@click.option(
    "--commits",
    is_flag=True,
    help="Add the commit and trends over commits from git, for pages that are not committed.",
)
@click.option(
    "--site",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a static site with the commit into this folder instead, for example for Pages.",
)
@click.option("--partial", is_flag=True, help="Write a site also if a cell has no result.")
@weights_option
def report(
    root: Path, *, commits: bool, site: Path | None, partial: bool, weights: str | None
) -> int:
    """Write the tables and the pages of the models."""
    manifest = open_project(root, initial_weights=weights is not None)
    current = read_results(manifest)
    print_result_notes(current)
    run = current.run
    trend = read_trend(manifest, os.environ) if commits else ()
    if site and current.missing and not partial:
        count = pluralize(len(current.missing), "cell")
        print_error(f"{count} without a result; run `exporter export` first, or pass --partial")
        return ExitCode.RED
    if site:
        _write_site(manifest, run, trend, site)
        print_line(f"{pluralize(len(run.records), 'cell')}: {site}/index.html")
        return ExitCode.OK
    commit = _describe_commit(root) if commits else ""
    warnings = write_reports(manifest, run, trend, commit)
    for warning in warnings:
        print_error(warning)
    cells = pluralize(len(run.records), "cell")
    print_line(f"{cells}: {manifest.project.reports}/COMPATIBILITY.md")
    # Without the accepted states, the pages do not show what changed.
    is_complete = not any(each.startswith(UNREADABLE_BASELINE) for each in warnings)
    return ExitCode.OK if is_complete else ExitCode.UNREADABLE


def _describe_commit(root: Path) -> str:
    head = find_head(root, os.environ)
    return f"commit {head}" if head else ""


def _write_site(
    manifest: Manifest, run: RunRecord, trend: Sequence[TrendPoint], folder: Path
) -> None:
    """Write the report as a static site, with the commit and the day of the results.

    Raises:
        ExporterError: ENVIRONMENT, if a file cannot be written, or is of no report.
    """
    root = Path(manifest.project.root)
    stamp, url = _describe_commit(root), find_commit_url(root, os.environ)
    pages = read_site_files(manifest, run, trend, stamp)
    site = render_site(pages, stamp, manifest.project.reports, url)
    require_own_files(folder, site)
    for name, content in site.items():
        write_bytes(folder / name, content.encode() if isinstance(content, str) else content)


#: The number of commits in a trend.
_MOST_POINTS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures:
    """The worst figures of the cells of a model; None if no cell has the figure."""

    green: int
    cells: int
    error: float | None = None
    """As a multiple of the limit."""
    bytes: int | None = None
    nodes: int | None = None
    latency: float | None = None
    """As a multiple of PyTorch's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """The accepted state at one commit."""

    commit: Commit
    models: Mapping[str, ModelFigures]

    @property
    def green(self) -> int:
        return sum(figures.green for figures in self.models.values())


def build_trend(versions: Iterable[tuple[Commit, Baseline]]) -> tuple[TrendPoint, ...]:
    points = []
    for commit, baseline in versions:
        models = {model_id: _summarize(each.cells) for model_id, each in baseline.models.items()}
        points.append(TrendPoint(commit=commit, models=models))
    return tuple(points)


def _summarize(outcomes: Sequence[CellOutcome]) -> ModelFigures:
    known = [outcome.figures for outcome in outcomes if outcome.figures]
    errors = [each.error for each in known if each.error is not None]
    latencies = [each.latency for each in known if each.latency is not None]
    return ModelFigures(
        green=sum(outcome.status.is_green for outcome in outcomes),
        cells=len(outcomes),
        error=max(errors, default=None),
        bytes=max((each.bytes for each in known), default=None),
        nodes=max((each.nodes for each in known), default=None),
        latency=max(latencies, default=None),
    )


def read_trend(manifest: Manifest, environment: Mapping[str, str]) -> tuple[TrendPoint, ...]:
    """Return the accepted states of the last commits; `environment` is that of git."""
    versions = []
    reports = ReportPaths(manifest.project).reports
    for commit, contents in list_versions(reports, [FOLDER], environment, _MOST_POINTS):
        with suppress(ExporterError):  # an old version may have another format
            baseline = parse_baseline(contents)
            renames = find_renames(manifest, baseline.models.keys())
            versions.append((commit, rename_models(baseline, renames)))
    return build_trend(versions)
