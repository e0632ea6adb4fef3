"""The data of `index.html`; its script reads the same names."""

from __future__ import annotations

from pydantic import Field

from exporter.core.frozen_model import FrozenModel, Items


class MarkData(FrozenModel):
    """The appearance of a status, and the number of its cells."""

    word: str
    symbol: str
    meaning: str
    family: str
    """`good`, `foreseen`, `bad` or `open`; it defines the color."""
    cells: int


class CheckData(FrozenModel):
    """The result of one check."""

    check: str
    mark: str
    message: str = ""
    figures: str = ""


class MissingData(FrozenModel):
    """An operator that the exporter does not support."""

    operator: str
    count: int
    sources: str = ""


class CellView(FrozenModel):
    """The outcome of a cell, with its reasons."""

    outcome: str
    """`fail at parity (axes)`."""
    stage: str = ""
    check: str = ""
    reason: str = ""
    expected_reason: str = ""
    acceptance: str = ""
    """The accepted outcome, or since when the current one is accepted."""
    lines: str = ""
    """Lines of the model."""
    culprit: str = ""
    sample: str = ""
    divergence: str = ""
    evidence: Items[str] = ()
    missing: Items[MissingData] = ()
    advice: Items[str] = ()
    detail: str = ""
    notes: Items[str] = ()
    flaky: str = ""


class FileData(FrozenModel):
    """The artifact."""

    exporter: str
    size: str
    bytes: int
    """With three significant digits."""
    nodes: str
    parameters: str
    ir_version: int


class CellData(FrozenModel):
    """One cell; `outcome`, `checks` and `file` are indices into the lists of its row."""

    opset: int
    mark: str
    outcome: int
    checks: int
    file: int = -1
    """-1 if there is no file."""
    error: float | None = None
    """The largest error as a multiple of its limit, rounded up; None if nothing was compared."""
    is_unbounded: bool = False
    """Whether the error has no finite multiple: different shapes, NaN, or a limit of 0."""
    log: str = ""
    export_command: str = ""
    repro_command: str = ""
    show_command: str = ""
    """Prints the graph; empty without a file."""
    is_changed: bool = False
    """Whether the baseline has another outcome, or none."""
    clusters: Items[int] = ()
    """Indices into the clusters of the head."""


class RowData(FrozenModel):
    """One model on one device."""

    model: str
    device: str
    page: str
    """Relative link."""
    location: str = ""
    """The entry in the manifest, if a cell is red: `manifests/vision.toml:14`."""
    description: str = ""
    tags: str = ""
    owner: str = ""
    lowest_opset: str = ""
    operators: str = ""
    """The operators of the files, and the missing ones."""
    outcomes: Items[CellView]
    checks: Items[Items[CheckData]]
    files: Items[FileData]
    cells: Items[CellData]


class ClusterData(FrozenModel):
    """Cells that fail in the same way, as a filter."""

    title: str
    """`error at convert: 12 cells of 3 models`."""
    reason: str = ""
    operator: str = ""
    is_new: bool = False
    """Whether the baseline has another outcome for one of the cells."""


class TrendData(FrozenModel):
    """The figures of all models, or of one, at each commit; None if there is none."""

    green: Items[int | None] = ()
    error: Items[float | None] = ()
    bytes: Items[int | None] = ()
    nodes: Items[int | None] = ()
    latency: Items[float | None] = ()


class IndexHead(FrozenModel):
    """Data for the whole page."""

    summary: str
    marks: Items[MarkData]
    devices: Items[str]
    tools: Items[tuple[str, str]]
    export_tools: str = ""
    """The tools that create and run the files: `torch 2.13.0, onnx 1.23.2`."""
    clusters: Items[ClusterData] = ()
    """New failures first, then the largest."""
    commits: Items[str] = ()
    """The commits of the trends: `2a9548ebe314 of 2026-11-21`."""
    trend: TrendData = TrendData()
    """The number of green cells of the project."""
    trends: dict[str, TrendData] = Field(default_factory=dict)
    """By model."""
    compared_with: str = ""
    """The state that changed cells are compared with."""
    problems: Items[str] = ()
    """The problems of manifest files that belong to no cell."""


class IndexData(FrozenModel):
    """All data of the page."""

    head: IndexHead
    rows: Items[RowData]
