"""A static site of the report, with the files that no commit contains."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from exporter.core.text import find_packaged_folder
from exporter.manifest import Manifest
from exporter.records.record import RunRecord
from exporter.report.junit import JUNIT, format_junit
from exporter.report.pages.index_page import INDEX, build_index_data, render_index
from exporter.report.pages.matrix_picture import MATRIX, draw_matrix
from exporter.report.pages.templates import render_html
from exporter.report.rows.cells import AcceptanceHistory, collect_cells

if TYPE_CHECKING:
    from markdown_it.token import Token


#: Files that only a site has.
SITE_FILES = (INDEX, JUNIT, MATRIX)


def render_site_files(
    manifest: Manifest, run: RunRecord, history: AcceptanceHistory | None = None
) -> dict[str, str | bytes]:
    """Return the files of `SITE_FILES`.

    Raises:
        ExporterError: MANIFEST, if a template is invalid.
    """
    history = history or AcceptanceHistory()
    by_model = collect_cells(manifest, run)
    data = build_index_data(manifest, run, by_model, history)
    templates = Path(manifest.project.root) / manifest.project.templates
    return {
        INDEX: render_index(*data, templates, history.commit),
        JUNIT: format_junit(manifest, by_model, history),
        MATRIX: draw_matrix(by_model),
    }


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
