"""A line of COMPATIBILITY.md that says of which cells and results the reports are.

Reports of two machines contradict each other after a merge of git that kept both sides. Then there
are two such lines, because results that differ have different digests.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from exporter.records.record import CellId
from exporter.report.rows.cells import Cell

_LINE = re.compile(r"^<!-- Digests: results ([0-9a-f]+), cells ([0-9a-f]+) -->$", re.MULTILINE)
#: Hexadecimal digits.
_LENGTH = 16


def hash_cells(cells: Iterable[CellId]) -> str:
    return _hash(str(cell) for cell in cells)


def hash_results(cells: Iterable[Cell]) -> str:
    """Return a digest of what equal files have on each machine: no message, error or size."""
    return _hash(" ".join(map(str, _list_facts(cell))) for cell in cells)


def format_digests(cells: Sequence[Cell]) -> str:
    results, ids = hash_results(cells), hash_cells(cell.id for cell in cells)
    return f"<!-- Digests: results {results}, cells {ids} -->\n"


def find_digests(text: str) -> list[tuple[str, str]]:
    """Return the digests of results and of cells in each such line of a page."""
    return _LINE.findall(text)


def _list_facts(cell: Cell) -> tuple[object, ...]:
    record = cell.record
    if record is None:
        return (cell.id, "-")
    route, file = record.route, record.artifact
    return (
        cell.id,
        record.status.value,
        record.stage or "-",
        record.check or "-",
        *((route.exporter, route.capture) if route else ("-", "-")),
        *((file.nodes, file.parameters, file.ir_version) if file else ("-", "-", "-")),
    )


def _hash(lines: Iterable[str]) -> str:
    text = "\n".join(sorted(lines))
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]
