"""The data of `index.html`: every promised cell with its record, as plain values."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from pydantic import Field

from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.text import (
    format_bytes,
    format_command,
    format_two_digits,
    join_lines,
    pluralize,
)
from exporter.manifest import Manifest, ModelSpec, Project, Style
from exporter.records.baseline import ModelFigures
from exporter.records.record import Artifact, CellId, CheckResult, Record, RunRecord, Status
from exporter.report.formats import (
    ELSEWHERE,
    MARKS,
    NOT_RUN,
    clean_detail,
    clean_message,
    format_count,
    quote_link_target,
)
from exporter.report.rows.artifacts import summarize_result
from exporter.report.rows.cells import (
    AcceptanceHistory,
    Cell,
    find_lowest_opset,
    format_export_tools,
    format_head,
)
from exporter.report.rows.failure_clusters import Cluster, cluster_cells
from exporter.report.rows.failures import explain_failure, keep_last_lines


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
    code: str = ""
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


T = TypeVar("T", bound=Hashable)

#: Multiples of the limit that float errors rarely cross from one machine to another.
_STEPS = (0.01, 0.1, 0.5, 1.0)


def build_index_data(
    manifest: Manifest,
    run: RunRecord,
    by_model: Mapping[str, Sequence[Cell]],
    history: AcceptanceHistory,
) -> IndexData:
    """Return the data of the page."""
    cells = [cell for each in by_model.values() for cell in each]
    clusters = cluster_cells((cell for cell in cells if cell.is_red), manifest, history)
    indices: dict[CellId, list[int]] = {}
    for index, cluster in enumerate(clusters):
        for id in cluster.members:
            indices.setdefault(id, []).append(index)
    rows = tuple(
        _build_row(spec, device, by_model[spec.id], manifest.project, history, indices)
        for spec in manifest.models
        for device in dict.fromkeys(spec.devices)
    )
    head = IndexHead(
        summary=format_head(cells),
        marks=_count_marks(cells, manifest.project.style),
        devices=tuple(dict.fromkeys(row.device for row in rows)),
        tools=tuple(
            (join_lines(name), join_lines(version)) for name, version in sorted(run.tools.items())
        ),
        export_tools=format_export_tools(run.tools),
        clusters=tuple(_describe_cluster(cluster) for cluster in clusters),
        compared_with="the baseline" if history.baseline else "",
        commits=tuple(str(point.commit) for point in history.trend),
        trend=TrendData(green=tuple(point.green for point in history.trend)),
        trends={
            spec.id: _list_figures([point.models.get(spec.id) for point in history.trend])
            for spec in (manifest.models if history.trend else ())
        },
        problems=tuple(join_lines(str(problem)) for problem in manifest.problems),
    )
    return IndexData(head=head, rows=rows)


def _describe_cluster(cluster: Cluster) -> ClusterData:
    affected = cluster.affected
    models = f"{affected.models} models" if affected.models > 1 else cluster.model
    return ClusterData(
        title=join_lines(f"{cluster.outcome}: {pluralize(affected.cells, 'cell')} of {models}"),
        reason=join_lines(cluster.reason),
        operator=join_lines(cluster.operator),
        is_new=cluster.is_new,
    )


def _list_figures(points: Sequence[ModelFigures | None]) -> TrendData:
    return TrendData(
        green=tuple(each.green if each else None for each in points),
        error=tuple(each.error if each else None for each in points),
        bytes=tuple(each.bytes if each else None for each in points),
        nodes=tuple(each.nodes if each else None for each in points),
        latency=tuple(each.latency if each else None for each in points),
    )


def _list_operators(cells: Iterable[Cell]) -> str:
    """Return the operators of the files and the missing ones, for a search."""
    records = [cell.record for cell in cells if cell.record]
    names = {name for record in records if record.artifact for name in record.artifact.operators}
    names |= {item.operator for record in records for item in record.missing}
    return join_lines(" ".join(sorted(names)))


def _count_marks(cells: Iterable[Cell], style: Style) -> tuple[MarkData, ...]:
    words = [cell.mark.word for cell in cells]
    marks = [(_choose_family(status), mark) for status, mark in MARKS.items()]
    marks += [("open", ELSEWHERE)] if ELSEWHERE.word in words else []
    return tuple(
        MarkData(
            word=mark.word,
            symbol=mark.symbol if style == "emoji" else mark.letter,
            meaning=mark.meaning,
            family=family,
            cells=words.count(mark.word),
        )
        for family, mark in (*marks, ("open", NOT_RUN))
    )


def _choose_family(status: Status) -> str:
    if status is Status.XFAIL:
        return "foreseen"
    return "good" if status.is_green else "bad" if status.is_red else "open"


def _index(items: dict[T, int], item: T) -> int:
    """Return the index of the item; equal items are stored once."""
    return items.setdefault(item, len(items))


def _build_row(
    spec: ModelSpec,
    device: str,
    model_cells: Sequence[Cell],
    project: Project,
    history: AcceptanceHistory,
    clusters: Mapping[CellId, Sequence[int]],
) -> RowData:
    outcomes: dict[CellView, int] = {}
    checks: dict[tuple[CheckData, ...], int] = {}
    files: dict[FileData, int] = {}
    cells = [cell for cell in model_cells if cell.id.device == device]
    data = []
    for cell in cells:
        record = cell.record
        results = record.checks if record else ()
        error = max((_read_error(result) for result in results), default=-math.inf)
        file = _describe_file(record, record.artifact) if record and record.artifact else None
        data.append(
            CellData(
                opset=cell.id.opset,
                mark=cell.mark.word,
                outcome=_index(outcomes, _describe_outcome(cell, history)),
                checks=_index(checks, tuple(_describe_check(result) for result in results)),
                file=_index(files, file) if file else -1,
                error=_round_error(error),
                is_unbounded=error == math.inf,
                log=join_lines(f"{project.build}/{record.log}") if record and record.log else "",
                export_command=join_lines(cell.format_command(project.command)),
                repro_command=join_lines(explain_failure(record, project.command).repro_command)
                if record
                else "",
                show_command=join_lines(format_command(project.command, "show", f"'{cell.id}'"))
                if file
                else "",
                is_changed=history.is_changed(cell),
                clusters=tuple(clusters.get(cell.id, ())),
            )
        )
    is_red = any(cell.is_red for cell in cells)
    return RowData(
        model=spec.id,
        device=join_lines(device),
        page=f"models/{quote_link_target(spec.id)}.md",
        location=join_lines(str(spec.location)) if is_red else "",
        description=join_lines(spec.description),
        tags=join_lines(", ".join(spec.tags)),
        owner=join_lines(spec.owner),
        lowest_opset=find_lowest_opset(cells),
        operators=_list_operators(cells),
        outcomes=tuple(outcomes),
        checks=tuple(checks),
        files=tuple(files),
        cells=tuple(data),
    )


def _describe_outcome(cell: Cell, history: AcceptanceHistory) -> CellView:
    record = cell.record
    if record is None:
        return CellView(outcome=cell.outcome, reason=cell.reason)
    reasons = explain_failure(record)
    return CellView(
        outcome=join_lines(cell.outcome),
        stage=record.stage or "",
        check=join_lines(record.check or ""),
        reason=cell.reason,
        expected_reason=cell.expected_reason,
        acceptance="" if cell.is_pass and not history.is_changed(cell) else history.describe(cell),
        lines=join_lines(", ".join(reasons.lines)),
        code=reasons.code,
        culprit=reasons.culprit,
        sample=join_lines(reasons.sample),
        divergence=join_lines(reasons.divergence),
        evidence=reasons.evidence,
        missing=tuple(
            MissingData(
                operator=join_lines(item.operator),
                count=item.count,
                sources=join_lines(item.sources),
            )
            for item in reasons.missing_operators
        ),
        advice=tuple(join_lines(line) for line in reasons.advice),
        detail=keep_last_lines(clean_detail(record.detail)),
        notes=tuple(clean_message(note) for note in record.notes),
        flaky=clean_message(record.flaky),
    )


def _describe_check(result: CheckResult) -> CheckData:
    metrics = tuple(result.metrics.items())
    return _describe_result(result.check, result.status, result.message, metrics)


@lru_cache(maxsize=1 << 15, typed=True)  # many cells have equal results
def _describe_result(
    check: str, status: Status, message: str, metrics: tuple[tuple[str, int | float | str], ...]
) -> CheckData:
    texts = summarize_result(status, metrics).figures
    if status is not Status.PASS:  # the user needs the digits for the fix
        texts = tuple(f"{name} {format_two_digits(value)}" for name, value in metrics)
    return CheckData(
        check=join_lines(check),
        mark=MARKS[status].word,
        message=clean_message(message),
        figures=join_lines(", ".join(texts)),
    )


def _describe_file(record: Record, artifact: Artifact) -> FileData:
    route = record.route
    return FileData(
        exporter=route.title if route else "",
        size=format_bytes(artifact.bytes),
        bytes=int(float(f"{artifact.bytes:.3g}")),
        nodes=format_count(artifact.nodes),
        parameters=format_count(artifact.parameters),
        ir_version=artifact.ir_version,
    )


def _read_error(result: CheckResult) -> float:
    """Return the error of a check as a multiple of its limit.

    Returns:
        -inf if the check compared nothing, inf for NaN.
    """
    value = result.metrics.get("of_limit")
    if not isinstance(value, int | float):
        return -math.inf
    return math.inf if math.isnan(value) else float(value)


def _round_error(error: float) -> float | None:
    if not math.isfinite(error):
        return None
    steps = (step for step in _STEPS if error <= step)
    return next(steps, float(format_two_digits(error)))
