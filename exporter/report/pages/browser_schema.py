"""The shapes of what `index.html` shows; its script reads the same names.

In: nothing. Out: `IndexData` and its parts. Fields at their defaults are left out of the JSON.

What neighbouring opsets share stands once in their row. A row is a line of the page, so that a
change of one model is a change of one line.
"""

from __future__ import annotations

from exporter.core.frozen_model import FrozenModel, Items


class MarkData(FrozenModel):
    """How a status looks, and how many cells have it."""

    word: str
    symbol: str
    meaning: str
    family: str
    """`good`, `foreseen`, `bad` or `open`: its colour."""
    cells: int


class CheckData(FrozenModel):
    """What one check said."""

    check: str
    mark: str
    message: str = ""
    figures: str = ""


class MissingData(FrozenModel):
    """An operator that the exporter lacks."""

    operator: str
    count: int
    sources: str = ""


class CellView(FrozenModel):
    """What became of a cell, and why."""

    outcome: str
    """`fail at parity (axes)`."""
    stage: str = ""
    check: str = ""
    why: str = ""
    foreseen: str = ""
    since: str = ""
    """What was accepted before, or since when it is as it is."""
    lines: str = ""
    """Of the model."""
    culprit: str = ""
    sample: str = ""
    first: str = ""
    evidence: Items[str] = ()
    missing: Items[MissingData] = ()
    advice: Items[str] = ()
    detail: str = ""
    notes: Items[str] = ()
    flaky: str = ""


class FileData(FrozenModel):
    """The file that ships."""

    exporter: str
    size: str
    bytes: int
    """Three significant digits."""
    nodes: str
    parameters: str
    ir_version: int


class CellData(FrozenModel):
    """One cell; numbers lead into the lists of its row."""

    opset: int
    mark: str
    outcome: int
    checks: int
    file: int = -1
    """-1 where there is none."""
    error: float | None = None
    """The largest error as a multiple of its limit, rounded up to a step; None: not compared."""
    boundless: bool = False
    """Whether the error has no finite multiple: another shape, a NaN, or no limit at all."""
    log: str = ""
    rerun: str
    reproduce: str = ""


class RowData(FrozenModel):
    """One model on one device."""

    model: str
    device: str
    page: str
    """Relative link."""
    promised: str = ""
    """Where its entry is, where a cell is red: `manifests/vision.toml:14`."""
    description: str = ""
    tags: str = ""
    owner: str = ""
    works_from: str = ""
    outcomes: Items[CellView]
    checks: Items[Items[CheckData]]
    files: Items[FileData]
    cells: Items[CellData]


class AcceptedData(FrozenModel):
    """One acceptance of a baseline."""

    tools: str
    """Those that are others than before; of the first, the ones that export."""
    counts: dict[str, int]
    """Cells by the word of their mark."""
    changes: Items[tuple[str, str, str]] = ()
    """Cell, outcome before, outcome since."""


class IndexHead(FrozenModel):
    """What is said once."""

    summary: str
    marks: Items[MarkData]
    devices: Items[str]
    tools: Items[tuple[str, str]]
    history: Items[AcceptedData] = ()


class IndexData(FrozenModel):
    """All that the page shows."""

    head: IndexHead
    rows: Items[RowData]
