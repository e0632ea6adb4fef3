"""The accepted outcome of every cell: `reports/baseline.json`, committed and reviewed like code.

In: a `RunRecord`. Out: a `Baseline` as versioned JSON with one line per cell, sorted, so that two
branches that accept different cells merge, and the same records give the same bytes.

It holds no message, path or time: what it says must hold on every machine. Its figures are those
that drift is measured by; errors differ a little between machines, and are held to a factor.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from exporter.core.atomic_files import write_text
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.frozen_model import FrozenModel, Items
from exporter.records.record import (
    LATENCY_CHECK,
    CellId,
    Record,
    RunRecord,
    Stage,
    Status,
)

#: Raised with every change that an older reader would misunderstand.
FORMAT: Final = 2


@lru_cache(maxsize=1 << 15)  # each cell is asked for again at every step
def parse_cell(text: str) -> CellId:
    """The cell that `str(cell)` wrote.

    Raises:
        ValueError: where `text` is not `model/opset/device`.
    """
    model, _, rest = text.partition("/")
    opset, _, device = rest.partition("/")
    if not (model and device and opset.isascii() and opset.isdigit()):
        raise ValueError(f"expected model/opset/device, got '{text}'")
    return CellId(model=model, opset=int(opset), device=device)


def _checked_cell(text: str) -> str:
    if str(parse_cell(text)) != text:
        raise ValueError(f"expected model/opset/device, got '{text}'")
    return text


class Figures(FrozenModel):
    """What a file was like, so that its drift shows while all promises are still kept."""

    bytes: int
    """The model file and its external data together."""
    nodes: int
    ir_version: int
    domains: Items[str] = ()
    """Other than ONNX's own, sorted."""
    error: float | None = None
    """The largest error of all checks as a multiple of what is allowed, to two digits; None where
    nothing was compared, or NaN and Inf stood elsewhere."""
    latency: float | None = None
    """The file's time as a multiple of PyTorch's in the same run, to two digits; None where the
    manifest does not ask for it."""


class CellOutcome(FrozenModel):
    """What became of one cell, as far as it is accepted."""

    cell: Annotated[str, AfterValidator(_checked_cell)]
    status: Status
    stage: Stage | None = None
    check: str | None = None
    exporter: Literal["dynamo", "torchscript"] | None = None
    """None where no file was made."""
    capture: Literal["export", "strict", "trace", "script"] | None = None
    """None where no file was made, and in baselines of format 1."""
    flaky: bool = False
    """Whether two runs of the very same inputs gave two verdicts."""
    figures: Figures | None = None
    """None where no file was made, and in baselines of format 1."""
    reason: str = ""
    """Why a person accepted it; empty where nobody said."""

    @property
    def id(self) -> CellId:
        """The cell, taken apart."""
        return parse_cell(self.cell)

    def __str__(self) -> str:
        """`pass`, `error at convert`, `fail at parity (axes)`."""
        return format_outcome(self.status, self.stage, self.check)


def format_outcome(status: Status, stage: Stage | None, check: str | None) -> str:
    """`pass`, `error at convert`, `fail at parity (axes)`."""
    where = f" at {stage}" if stage else ""
    # A stage and its main check may share their name; once is enough.
    by = f" ({check})" if check and check != stage else ""
    return f"{status}{where}{by}"


class Baseline(FrozenModel):
    """The accepted outcomes, and the tools that they were found with."""

    format: Literal[1, 2] = FORMAT
    """1 knows no figures: such a baseline is read, and written anew as 2."""
    tools: dict[str, str]
    cells: Items[CellOutcome]
    dropped: dict[str, str] = Field(default_factory=dict)
    """Why a cell is no longer promised, by its text, where a person said so; until all is accepted
    anew."""

    @model_validator(mode="after")
    def _each_cell_once(self) -> Self:
        """A merge can leave a cell twice; taking the last would accept what nobody did."""
        _by_cell(self.cells)
        return self

    def by_cell(self) -> dict[str, CellOutcome]:
        """Outcomes by the text of their cell."""
        return _by_cell(self.cells)

    @property
    def has_figures(self) -> bool:
        """Whether drift can be told of every cell that passes; not where format 1 wrote one."""
        return all(each.figures is not None for each in self.cells if each.status is Status.PASS)

    def to_json(self, *, indent: int | None = 2) -> str:
        """Canonical JSON with a line for each tool and each cell, both in order."""
        pad = " " * (indent or 0)
        tools = (
            f"{json.dumps(name)}: {json.dumps(version)}"
            for name, version in sorted(self.tools.items())
        )
        cells = (
            json.dumps(outcome.model_dump(mode="json", exclude_defaults=True))
            for outcome in sorted(self.cells, key=lambda outcome: outcome.id.sort_key)
        )
        entries = (
            f"{json.dumps(cell)}: {json.dumps(reason)}"
            for cell, reason in sorted(self.dropped.items())
        )
        dropped = f',\n{pad}"dropped": {{{_lines(entries, pad)}}}' if self.dropped else ""
        return (
            "{\n"
            f'{pad}"format": {FORMAT},\n'
            f'{pad}"tools": {{{_lines(tools, pad)}}},\n'
            f'{pad}"cells": [{_lines(cells, pad)}]{dropped}\n'
            "}\n"
        )


def extract_outcome(record: Record) -> CellOutcome:
    """The part of a record that is accepted or not."""
    return CellOutcome(
        cell=str(record.cell),
        status=record.status,
        stage=record.stage,
        check=record.check,
        exporter=record.route.exporter if record.route else None,
        capture=record.route.capture if record.route else None,
        flaky=bool(record.flaky),
        figures=_figures(record),
    )


def _figures(record: Record) -> Figures | None:
    artifact = record.artifact
    if artifact is None:
        return None
    domains = {name.rpartition("::")[0] for name in artifact.operators} - {""}
    errors = [result.metrics.get("of_limit") for result in record.checks]
    known = [float(error) for error in errors if isinstance(error, int | float)]
    is_known = known and all(math.isfinite(error) for error in known)
    return Figures(
        bytes=artifact.bytes,
        nodes=artifact.nodes,
        ir_version=artifact.ir_version,
        domains=tuple(sorted(domains)),
        error=float(f"{max(known):.2g}") if is_known else None,
        latency=_latency(record),
    )


def _latency(record: Record) -> float | None:
    ratios = [result.metrics.get("ratio") for result in record.checks if result.check == LATENCY_CHECK]
    return next((float(f"{ratio:.2g}") for ratio in ratios if isinstance(ratio, float)), None)


def extract_outcomes(run: RunRecord) -> dict[str, CellOutcome]:
    """Every outcome of the run, by the text of its cell.

    Raises:
        ExporterError: UNREADABLE, where the run has two records for a cell: one could hide the
            other.
    """
    try:
        return _by_cell(extract_outcome(record) for record in run.records)
    except ValueError as error:
        raise ExporterError(ExitCode.UNREADABLE, f"the results name {error}") from error


def make_baseline(run: RunRecord) -> Baseline:
    """Accepts every record of the run as it is.

    Raises:
        ExporterError: UNREADABLE, where the run has two records for a cell.
    """
    outcomes = extract_outcomes(run).values()
    cells = sorted(outcomes, key=lambda outcome: outcome.id.sort_key)
    return Baseline(tools=dict(sorted(run.tools.items())), cells=tuple(cells))


def read_baseline(path: Path) -> Baseline:
    """Reads the committed baseline.

    Raises:
        ExporterError: RED, where there is none yet, so that a gate without a baseline stops and
            says what to do; UNREADABLE, where it is damaged or of another format.
    """
    try:
        return parse_baseline(path.read_bytes(), str(path))
    except FileNotFoundError as error:
        message = f"{path}: no baseline yet: run `exporter baseline` to accept today's results"
        raise ExporterError(ExitCode.RED, message) from error
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror}"
        raise ExporterError(ExitCode.UNREADABLE, message) from error


def parse_baseline(content: bytes, name: str) -> Baseline:
    """Takes the bytes of a baseline apart; `name` is what messages call it.

    Raises:
        ExporterError: UNREADABLE, where it is damaged or of another format.
    """
    if any(line.startswith(b"<<<<<<< ") for line in content.splitlines()):
        message = f"{name}: holds a merge conflict: resolve it, or delete the file and accept anew"
        raise ExporterError(ExitCode.UNREADABLE, message)
    try:
        return Baseline.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        said = f"{where}: {first['msg']}" if where else first["msg"]
        message = f"{name}: is no baseline of format {FORMAT} or older: {said}"
        raise ExporterError(ExitCode.UNREADABLE, message) from error


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Writes the baseline by fresh file and rename.

    Raises:
        ExporterError: ENVIRONMENT, where it cannot be written.
    """
    write_text(path, baseline.to_json())


def _by_cell(outcomes: Iterable[CellOutcome]) -> dict[str, CellOutcome]:
    found: dict[str, CellOutcome] = {}
    for outcome in outcomes:
        if outcome.cell in found:
            raise ValueError(f"the cell {outcome.cell} twice")
        found[outcome.cell] = outcome
    return found


def _lines(entries: Iterable[str], pad: str) -> str:
    return ",".join(f"\n{2 * pad}{entry}" for entry in entries) + f"\n{pad}"
