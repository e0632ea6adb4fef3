"""Reports from records: pages for people, and files for other programs."""

from exporter.report.formats import MARKS, NOT_RUN, Mark, choose_mark
from exporter.report.pages.page_files import (
    preload_templates,
    render_gate,
    render_pages,
)
from exporter.report.report_files import render_exports, write_reports
from exporter.report.rows.cells import OpsetGroup
from exporter.report.rows.contract import format_fill
from exporter.report.rows.failure_clusters import group_findings

__all__ = [
    "MARKS",
    "NOT_RUN",
    "Mark",
    "OpsetGroup",
    "choose_mark",
    "format_fill",
    "group_findings",
    "preload_templates",
    "render_exports",
    "render_gate",
    "render_pages",
    "write_reports",
]
