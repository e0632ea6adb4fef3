"""Records in, reports out: the table, a page per model, the gate's findings, files for programs."""

from exporter.report.exports.all_exports import render_outputs
from exporter.report.pages.render_pages import prepare_pages, render_gate, render_reports
from exporter.report.rows.contract import fill_text
from exporter.report.rows.finding_groups import fold_findings
from exporter.report.rows.opset_ranges import OpsetGroup, fold_opsets
from exporter.report.text.status_marks import (
    MARKS,
    NOT_RUN,
    Mark,
    mark_of,
)
from exporter.report.write import write_reports

__all__ = [
    "MARKS",
    "NOT_RUN",
    "Mark",
    "OpsetGroup",
    "fill_text",
    "fold_findings",
    "fold_opsets",
    "mark_of",
    "prepare_pages",
    "render_gate",
    "render_outputs",
    "render_reports",
    "write_reports",
]
