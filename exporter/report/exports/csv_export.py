"""`reports/results.csv`: one line for each cell, for spreadsheets and scripts.

Spreadsheets evaluate a field as a formula if it begins with one of a few characters, quoted or
not. Such a field gets a leading apostrophe, as OWASP recommends (CSV injection).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from exporter.core.onnxruntime_releases import find_first_release, format_release
from exporter.core.text import join_lines
from exporter.report.rows.cells import Cell

_COLUMNS = (
    "model",
    "opset",
    "device",
    "status",
    "stage",
    "check",
    "exporter",
    "capture",
    "bytes",
    "nodes",
    "parameters",
    "ir_version",
    "first_onnxruntime",
    "message",
)
#: ASCII characters, and their full-width forms, which some spreadsheets accept too.
_FORMULA = tuple("=+-@\t\r|\N{FULLWIDTH EQUALS SIGN}\uff0b\uff0d\uff20")


def format_csv(cells: Iterable[Cell]) -> str:
    """Return the file, with the names of the columns in the first line."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for cell in cells:
        fields = _list_fields(cell)
        writer.writerow(escape_formula(each) if isinstance(each, str) else each for each in fields)
    return buffer.getvalue()


def escape_formula(text: str) -> str:
    """Return the text on one line, in a form that spreadsheets do not evaluate."""
    line = join_lines(text)
    return f"'{line}" if line.startswith(_FORMULA) else line


def _list_fields(cell: Cell) -> tuple[str | int, ...]:
    record = cell.record
    route = record.route if record else None
    file: tuple[str | int, ...] = ("", "", "", "", "")
    if record and (artifact := record.artifact):
        release = find_first_release(artifact.opset_imports.get("", 0), artifact.ir_version)
        file = (
            artifact.bytes,
            artifact.nodes,
            artifact.parameters,
            artifact.ir_version,
            format_release(release) if release else "",
        )
    return (
        cell.id.model,
        cell.id.opset,
        cell.id.device,
        record.status if record else cell.mark.word,
        (record and record.stage) or "",
        (record and record.check) or "",
        route.exporter if route else "",
        route.capture if route else "",
        *file,
        "" if cell.is_pass else cell.expected_reason or cell.reason,
    )
