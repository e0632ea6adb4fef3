"""One line for each cell, for spreadsheets and scripts: `reports/results.csv`.

In: every model's `Cell`s. Out: CSV (RFC 4180, lines end in a newline alone), UTF-8.

A spreadsheet takes a field for a formula that begins with one of a few characters, quoted or not;
such a text gets an apostrophe before it, as OWASP advises (CSV injection).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from exporter.core import onnxruntime_releases as support
from exporter.core.sanitize import one_line
from exporter.records.record import Artifact
from exporter.report.rows.cells import Cell
from exporter.report.text.markdown import visible

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
#: ASCII, and the full-width forms that some spreadsheets take for them.
_FORMULA = tuple("=+-@\t\r|\N{FULLWIDTH EQUALS SIGN}\uff0b\uff0d\uff20")


def results_csv(cells: Iterable[Cell]) -> str:
    """The whole file, with a line of names first."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for cell in cells:
        writer.writerow(guarded(field) if isinstance(field, str) else field for field in _row(cell))
    return buffer.getvalue()


def guarded(text: str) -> str:
    """`text` on one line, which no spreadsheet computes."""
    line = visible(one_line(text))
    return f"'{line}" if line.startswith(_FORMULA) else line


def _row(cell: Cell) -> tuple[str | int, ...]:
    record = cell.record
    route = record.route if record else None
    return (
        cell.id.model,
        cell.id.opset,
        cell.id.device,
        record.status if record else cell.mark.word,
        (record and record.stage) or "",
        (record and record.check) or "",
        route.exporter if route else "",
        route.capture if route else "",
        *_file(record.artifact if record else None),
        "" if cell.is_pass else cell.foreseen or cell.why,
    )


def _file(artifact: Artifact | None) -> tuple[str | int, ...]:
    if artifact is None:
        return ("", "", "", "", "")
    first = support.first_release(artifact.opset_imports.get("", 0), artifact.ir_version)
    return (
        artifact.bytes,
        artifact.nodes,
        artifact.parameters,
        artifact.ir_version,
        support.spelled(first) if first else "",
    )
