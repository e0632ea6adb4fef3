"""`exporter report`: write the reports from the results, or a static site of them."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click
from markupsafe import Markup

from exporter.api.gate_run import read_results
from exporter.cli.options import root_option
from exporter.cli.output.github import find_commit_url
from exporter.cli.output.tables import open_project, print_result_notes
from exporter.cli.output.terminal import print_error, print_line
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import write_bytes
from exporter.core.git import Commit, find_head
from exporter.core.text import (
    find_packaged_folder,
    pluralize,
)
from exporter.manifest import Manifest
from exporter.records.baseline import FOLDER, Baseline, CellOutcome, parse_baseline
from exporter.records.record import RunRecord
from exporter.report.pages.templates import render_html
from exporter.report.report_files import list_versions
from exporter.report.report_pages import render_reports, write_reports
from exporter.report.report_paths import ReportPaths

if TYPE_CHECKING:
    from markdown_it.token import Token


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
def report(root: Path, *, commits: bool, site: Path | None) -> int:
    """Write the tables and the pages of the models."""
    manifest = open_project(root)
    current = read_results(manifest)
    print_result_notes(current)
    run = current.run
    if site:
        _write_site(manifest, run, site)
        print_line(f"{pluralize(len(run.records), 'cell')}: {site}/index.html")
        return ExitCode.OK
    trend = read_trend(ReportPaths(manifest.project), os.environ) if commits else ()
    commit = _describe_commit(root) if commits else ""
    for warning in write_reports(manifest, run, trend, commit):
        print_error(warning)
    cells = pluralize(len(run.records), "cell")
    print_line(f"{cells}: {manifest.project.reports}/COMPATIBILITY.md")
    return ExitCode.OK


def _describe_commit(root: Path) -> str:
    head = find_head(root, os.environ)
    return f"commit {head}" if head else ""


def _write_site(manifest: Manifest, run: RunRecord, folder: Path) -> None:
    """Write the report as a static site, with the commit and the day of the results.

    Raises:
        ExporterError: ENVIRONMENT, if a file cannot be written, or is of no report.
    """
    from exporter.report.report_files import require_own_files

    root = Path(manifest.project.root)
    stamp, url = _describe_commit(root), find_commit_url(root, os.environ)
    pages = render_reports(manifest, run, stamp)
    site = render_site(pages, stamp, manifest.project.reports, url)
    require_own_files(folder, site)
    for name, content in site.items():
        write_bytes(folder / name, content.encode() if isinstance(content, str) else content)


def render_site(
    pages: Mapping[str, str | bytes], stamp: str, folder: str = "", url: str = ""
) -> dict[str, str | bytes]:
    """Return the files of a static site: each page of markdown as HTML, other files unchanged.

    `stamp`: The commit and the day of the results, for the foot of each page.
    `folder`, `url`: The pages in the project, and the URL of the project's files for links to
        other files; without it, they are plain text.
    """
    from markdown_it import MarkdownIt

    codes = (find_packaged_folder("docs") / "failures.md").read_text("utf-8")
    # The page of the codes is the only document of the site, so its links to others are texts.
    pages = {**pages, "failures.md": re.sub(r"\[([^\]\n]+)\]\([^)]+\)", r"\1", codes)}
    parser, site = MarkdownIt("commonmark", {"html": True}).enable("table"), {**pages}
    for name in sorted(name for name in pages if name.endswith(".md")):
        tokens = parser.parse(str(site.pop(name)))
        for token in tokens:
            _redirect_links(token.children or (), posixpath.dirname(name), pages, folder, url)
        for heading, content in pairwise(tokens):
            if heading.type == "heading_open":  # the anchors of GitHub
                title = "".join(each.content for each in content.children or ())
                anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
                heading.attrSet("id", anchor)
        body = parser.renderer.render(tokens, parser.options, {})
        path = name.removesuffix(".md")
        site[f"{path}.html"] = render_html(
            "site.html",
            None,
            body=Markup(body),  # noqa: S704 - pages of templates, which escape each text
            title=path.rpartition("/")[2],
            root="../" * name.count("/"),
            stamp=stamp,
        )
    index = str(site["index.html"])
    index = index.replace("<body>", '<body data-codes="failures.html">', 1)
    site["index.html"] = re.sub(r'((?:href=|"page": ?)"[^":]+)\.md"', r'\1.html"', index)
    return site


def _redirect_links(
    tokens: Iterable[Token], base: str, pages: Collection[str], folder: str, url: str
) -> None:
    is_hidden = False
    for token in tokens:
        if token.type == "link_close":
            token.hidden = is_hidden
        if token.type != "link_open":
            continue
        path, mark, anchor = str(token.attrGet("href")).partition("#")
        target = posixpath.normpath(posixpath.join(base, path))
        is_hidden = token.hidden = False
        if target in pages:
            token.attrSet("href", re.sub(r"\.md$", ".html", path) + mark + anchor)
        elif path and ":" not in path:
            outside = posixpath.normpath(posixpath.join(folder, target))
            token.attrSet("href", f"{url}/{outside}{mark}{anchor}")
            is_hidden = token.hidden = not url


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


def read_trend(paths: ReportPaths, environment: Mapping[str, str]) -> tuple[TrendPoint, ...]:
    """Return the accepted states of the last commits; `environment` is that of git."""
    versions = []
    for commit, contents in list_versions(paths.reports, [FOLDER], environment, _MOST_POINTS):
        with suppress(ExporterError):  # an old version may have another format
            versions.append((commit, parse_baseline(contents)))
    return build_trend(versions)
