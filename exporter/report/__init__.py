"""Records in, reports out: the table, a page per model, the gate's findings, files for programs."""

from exporter.report.contract import fill_text
from exporter.report.fold import Fold, fold_findings, fold_opsets
from exporter.report.outputs import render_outputs
from exporter.report.render import prepare_pages, render_gate, render_reports
from exporter.report.symbols import MARKS, NOT_RUN, Mark, mark_of
from exporter.report.write import write_reports

__all__ = [
    "MARKS",
    "NOT_RUN",
    "Fold",
    "Mark",
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
