"""The accepted outcome of every cell: `reports/baseline.json`, committed and reviewed like code.

The file contains no message, path or time, because it must be valid on every machine. Its figures
are those that drift is measured by. Errors differ a little between machines; the gate compares them
with a factor.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, PlainSerializer, PlainValidator, ValidationError, model_validator

from exporter.core.device_name import DeviceName
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import write_text
from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.git import Commit
from exporter.core.text import format_bytes
from exporter.records.record import (
    CellId,
    Latency,
    LoadTime,
    Measurements,
    PeakMemory,
    Record,
    RunRecord,
    Stage,
    Status,
    format_outcome,
    format_validation_error,
)

#: Raised with every change that an older reader would misunderstand.
FORMAT: Final = 3


@lru_cache(maxsize=1 << 15)  # the baseline and the history contain each cell several times
def parse_cell(text: str) -> CellId:
    """Return the cell that `str(cell)` wrote.

    Raises:
        ValueError: if `text` is not `model/opset/device`.
    """
    model, _, rest = text.partition("/")
    opset, _, device = rest.partition("/")
    if not (model and device and opset.isascii() and opset.isdigit()):
        raise ValueError(f"expected model/opset/device, got '{text}'")
    cell = CellId(model=model, opset=int(opset), device=DeviceName(device))
    if str(cell) != text:  # an opset with leading zeros
        raise ValueError(f"expected model/opset/device, got '{text}'")
    return cell


#: A cell that files contain as text.
CellText = Annotated[
    CellId,
    PlainValidator(lambda value: value if isinstance(value, CellId) else parse_cell(str(value))),
    PlainSerializer(str, return_type=str),
]


class Figures(FrozenModel):
    """The figures of an artifact by which the gate detects drift."""

    bytes: int
    """The size of the model file and its external data."""
    nodes: int
    ir_version: int
    domains: Items[str] = ()
    """Sorted, without ONNX's own domain."""
    error: float | None = None
    """The largest error of all checks divided by its limit, with two digits. None if no error was
    measured, or if the positions of NaN and Inf differ."""
    thorough: bool = False
    """Whether more sizes and values were tried than by default."""
    is_short: bool = False
    """Whether another device proved the promises of the file, so that fewer samples ran here."""
    metric: float | None = None
    """The metric of the file with four digits. None if the entry has none."""
    latency: float | None = None
    """The file's time divided by PyTorch's in the same run, with two digits. None if the manifest
    does not request it with `measure`."""
    load: float | None = None
    """The load time divided by that of a file with one node, with two digits."""
    memory: float | None = None
    """The peak memory divided by the size of the file, with two digits."""


class CellOutcome(FrozenModel):
    """The accepted outcome of one cell."""

    cell: CellText
    status: Status
    stage: Stage | None = None
    check: str | None = None
    """The check that decides the status."""
    other_checks: Items[str] = ()
    """The other checks that did not pass. Empty in baselines of format 1 and 2, so the gate reports
    every such check once."""
    exporter: Literal["dynamo", "torchscript", "transformers", "file"] | None = None
    """None if no file was created."""
    capture: Literal["export", "strict", "draft", "trace", "script", "none"] | None = None
    """None if no file was created, and in baselines of format 1."""
    flaky: bool = False
    """True if two runs of equal inputs had different outcomes."""
    figures: Figures | None = None
    """None if no file was created, and in baselines of format 1."""
    reason: str = ""
    """The reason that the user gave; empty if none was given."""

    def __str__(self) -> str:
        """Return `pass`, `error at convert` or `fail at parity (axes, values)`."""
        return format_outcome(self.status, self.stage, self.failed_checks)

    @property
    def failed_checks(self) -> tuple[str, ...]:
        """The checks that did not pass, the deciding one first."""
        return (self.check, *self.other_checks) if self.check else self.other_checks


class Baseline(FrozenModel):
    """The accepted outcomes, and the versions of the tools that gave them."""

    format: Literal[1, 2, 3] = FORMAT
    """Format 1 has no figures, and format 2 no `other_checks`. Both are written again as 3."""
    tools: dict[str, str]
    cells: Items[CellOutcome]
    dropped: dict[CellText, str] = Field(default_factory=dict)
    """The user's reason for each removed cell, until all cells are accepted again."""

    @model_validator(mode="after")
    def _reject_duplicates(self) -> Self:
        """Reject a cell that a merge duplicated: either outcome could be the accepted one."""
        _index_by_cell(self.cells)
        return self

    def by_cell(self) -> dict[CellId, CellOutcome]:
        return _index_by_cell(self.cells)

    @property
    def has_figures(self) -> bool:
        """Whether all passing cells have figures, which format 1 did not store."""
        return all(each.figures is not None for each in self.cells if each.status is Status.PASS)

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return canonical JSON with one sorted line per tool and per cell."""
        pad = " " * (indent or 0)

        def format_lines(entries: Iterable[str]) -> str:
            return ",".join(f"\n{2 * pad}{entry}" for entry in entries) + f"\n{pad}"

        def format_table(table: dict[str, str]) -> str:
            pairs = sorted(table.items())
            return format_lines(f"{json.dumps(key)}: {json.dumps(text)}" for key, text in pairs)

        cells = format_lines(
            json.dumps(outcome.model_dump(mode="json", exclude_defaults=True))
            for outcome in sorted(self.cells, key=lambda outcome: outcome.cell.sort_key)
        )
        reasons = format_table({str(cell): reason for cell, reason in self.dropped.items()})
        dropped = f',\n{pad}"dropped": {{{reasons}}}' if self.dropped else ""
        return (
            "{\n"
            f'{pad}"format": {FORMAT},\n'
            f'{pad}"tools": {{{format_table(self.tools)}}},\n'
            f'{pad}"cells": [{cells}]{dropped}\n'
            "}\n"
        )


def extract_outcome(record: Record) -> CellOutcome:
    """Return the part of a record that the baseline stores."""
    return CellOutcome.from_fields(
        record,
        other_checks=tuple(check for check in record.failed_checks if check != record.check),
        exporter=record.route.exporter if record.route else None,
        capture=record.route.capture if record.route else None,
        flaky=bool(record.flaky),
        figures=_extract_figures(record),
    )


def _extract_figures(record: Record) -> Figures | None:
    artifact = record.artifact
    if artifact is None:
        return None
    domains = {name.rpartition("::")[0] for name in artifact.operators} - {""}
    metrics = [result.metrics.get("of_limit") for result in record.checks]
    known_metrics = [
        value
        for result in record.checks
        if isinstance(value := result.metrics.get("metric"), int | float)
    ]
    errors = [float(error) for error in metrics if isinstance(error, int | float)]
    is_measured = errors and all(math.isfinite(error) for error in errors)
    measured = record.measurements or Measurements()
    return Figures.from_fields(
        artifact,
        thorough=record.thorough,
        is_short=bool(record.proved_on),
        domains=tuple(sorted(domains)),
        error=float(f"{max(errors):.2g}") if is_measured else None,
        metric=next((float(f"{value:.4g}") for value in known_metrics), None),
        latency=_round_ratio(measured.latency),
        load=_round_ratio(measured.load),
        memory=_round_ratio(measured.memory),
    )


def _round_ratio(measurement: Latency | LoadTime | PeakMemory | None) -> float | None:
    return float(f"{measurement.ratio:.2g}") if measurement else None


def extract_outcomes(run: RunRecord) -> dict[CellId, CellOutcome]:
    """Return every outcome of the run by its cell.

    Raises:
        ExporterError: UNREADABLE if the run has two records for a cell, as one could hide the
            other.
    """
    try:
        return _index_by_cell(extract_outcome(record) for record in run.records)
    except ValueError as error:
        raise ExporterError(ExitCode.UNREADABLE, f"the results contain {error}") from error


def build_baseline(
    outcomes: Iterable[CellOutcome], tools: Mapping[str, str], dropped: Mapping[CellId, str] = {}
) -> Baseline:
    """Return the baseline with its cells and tools in order."""
    return Baseline(
        tools=dict(sorted(tools.items())),
        cells=tuple(sorted(outcomes, key=lambda outcome: outcome.cell.sort_key)),
        dropped=dict(dropped),
    )


def make_baseline(run: RunRecord) -> Baseline:
    """Return a baseline that accepts every record of the run.

    Raises:
        ExporterError: UNREADABLE if the run has two records for a cell.
    """
    return build_baseline(extract_outcomes(run).values(), run.tools)


def read_baseline(path: Path) -> Baseline:
    """Read the committed baseline.

    Raises:
        ExporterError: RED if the file does not exist, because a gate without a baseline must
            fail. UNREADABLE if it is damaged or has another format.
    """
    try:
        return parse_baseline(path.read_bytes(), str(path))
    except FileNotFoundError as error:
        message = f"{path}: no baseline yet; run `exporter baseline` to accept the current results"
        raise ExporterError(ExitCode.RED, message) from error
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror}"
        raise ExporterError(ExitCode.UNREADABLE, message) from error


def parse_baseline(content: bytes, name: str) -> Baseline:
    """Parse the bytes of a baseline; messages call it `name`.

    Raises:
        ExporterError: UNREADABLE if it is damaged or has another format.
    """
    if any(line.startswith(b"<<<<<<< ") for line in content.splitlines()):
        message = (
            f"{name}: contains a merge conflict; resolve it, or delete the file and accept the "
            "results again"
        )
        raise ExporterError(ExitCode.UNREADABLE, message)
    try:
        return Baseline.model_validate_json(content)
    except ValidationError as error:
        problem = format_validation_error(error)
        message = f"{name}: is not a baseline of format {FORMAT} or older: {problem}"
        raise ExporterError(ExitCode.UNREADABLE, message) from error


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write the baseline atomically.

    Raises:
        ExporterError: ENVIRONMENT if it cannot be written.
    """
    write_text(path, baseline.to_json())


def _index_by_cell(outcomes: Iterable[CellOutcome]) -> dict[CellId, CellOutcome]:
    by_cell: dict[CellId, CellOutcome] = {}
    for outcome in outcomes:
        if outcome.cell in by_cell:
            raise ValueError(f"the cell {outcome.cell} twice")
        by_cell[outcome.cell] = outcome
    return by_cell


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures:
    """The worst figures of the cells of a model; None if no cell has the figure."""

    green: int
    cells: int
    error: float | None = None
    """As a multiple of the limit."""
    bytes: int | None = None
    nodes: int | None = None
    latency: float | None = None
    """As a multiple of PyTorch's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """The accepted state at one commit."""

    commit: Commit
    models: Mapping[str, ModelFigures]

    @property
    def green(self) -> int:
        return sum(figures.green for figures in self.models.values())


def build_trend(versions: Iterable[tuple[Commit, Baseline]]) -> tuple[TrendPoint, ...]:
    points = []
    for commit, baseline in versions:
        by_model: dict[str, list[CellOutcome]] = {}
        for outcome in baseline.cells:
            by_model.setdefault(outcome.cell.model, []).append(outcome)
        models = {model: _summarize(outcomes) for model, outcomes in by_model.items()}
        points.append(TrendPoint(commit=commit, models=models))
    return tuple(points)


def list_steps(trend: Sequence[TrendPoint], model: str) -> tuple[tuple[str, ...], ...]:
    """Return the commits at which a figure of the model changed, the newest first.

    Returns:
        The commit, the green cells, error, size, nodes and latency, as texts.
    """
    steps: list[tuple[str, ...]] = []
    before: ModelFigures | None = None
    for point in trend:
        figures = point.models.get(model)
        if figures and figures != before:
            optional = (
                "" if figures.error is None else f"{figures.error:g}",
                "" if figures.bytes is None else format_bytes(figures.bytes),
                "" if figures.nodes is None else str(figures.nodes),
                "" if figures.latency is None else f"{figures.latency:g}",
            )
            counts = f"{figures.green} of {figures.cells}"
            steps.insert(0, (str(point.commit), counts, *optional))
        before = figures
    return tuple(steps)


def _summarize(outcomes: Sequence[CellOutcome]) -> ModelFigures:
    known = [outcome.figures for outcome in outcomes if outcome.figures]
    errors = [each.error for each in known if each.error is not None]
    latencies = [each.latency for each in known if each.latency is not None]
    return ModelFigures(
        green=sum(outcome.status.is_green for outcome in outcomes),
        cells=len(outcomes),
        error=max(errors, default=None),
        bytes=max((each.bytes for each in known), default=None),
        nodes=max((each.nodes for each in known), default=None),
        latency=max(latencies, default=None),
    )
