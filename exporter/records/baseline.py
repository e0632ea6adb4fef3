"""The accepted state of every model: `reports/baseline/MODEL.json`, reviewed like code.

Each model has a file of its own, so that branches with different models merge without a conflict.
The files contain no message, path or time, because they must be valid on every machine. Their
figures are those that drift is measured by. Errors differ a little between machines; the gate
compares them with a factor.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Annotated, Final, Literal, Self

from pydantic import Field, PlainSerializer, PlainValidator, ValidationError, model_validator

from exporter.core.device_name import DeviceName
from exporter.core.errors import ExitCode, ExporterError, Problem
from exporter.core.files import CELL_LIMIT, PROJECT_LIMIT, read_regular_file, write_text
from exporter.core.frozen_model import FrozenModel, Items, Plain
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
FORMAT: Final = 4
#: In the reports folder.
FOLDER = "baseline"
_INVALID = f"is not a baseline of format {FORMAT}; delete it and run `exporter baseline`"
_CONFLICT = "contains a merge conflict; resolve it, or delete the file and accept the results again"


@lru_cache(maxsize=1 << 15)  # the baseline and the history contain each cell several times
def parse_cell(text: str) -> CellId:
    """Return the cell that `str(cell)` wrote.

    Raises:
        ValueError: if `text` is not `model/opset/device`.
    """
    model_id, _, rest = text.partition("/")
    opset, _, device_name = rest.partition("/")
    if not (model_id and device_name and opset.isascii() and opset.isdigit()):
        raise ValueError(f"expected model/opset/device, got '{text}'")
    cell = CellId(model=model_id, opset=int(opset), device=DeviceName(device_name))
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
    largest_error: float | None = None
    """The largest difference from PyTorch in the unit of the output, with two digits: a looser
    limit makes `error` smaller. None in baselines of older versions."""
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
    """The other checks that did not pass."""
    exporter: Literal["dynamo", "torchscript", "transformers", "file", "chain"] | None = None
    """None if no file was created."""
    capture: Literal["export", "strict", "draft", "trace", "script", "none"] | None = None
    """None if no file was created."""
    flaky: bool = False
    """True if two runs of equal inputs had different outcomes."""
    figures: Figures | None = None
    """None if no file was created."""
    reason: str = ""
    """The reason that the user gave; empty if none was given."""

    def __str__(self) -> str:
        """Return `pass`, `error at convert` or `fail at parity (axes, values)`."""
        return format_outcome(self.status, self.stage, self.failed_checks)

    @property
    def failed_checks(self) -> tuple[str, ...]:
        """The checks that did not pass, the deciding one first."""
        return (self.check, *self.other_checks) if self.check else self.other_checks


class AcceptedModel(FrozenModel):
    """The accepted state of a model: a file of the baseline."""

    format: Literal[4] = FORMAT
    tools: dict[str, str]
    """The versions that gave the outcomes."""
    weights: Literal["loaded", "initial", ""] = ""
    """Whether the weights were loaded or drawn; empty if it is unknown."""
    weights_sha256: str = ""
    """The content of the file `weights` of the outcomes, or of the files of weights that the source
    reads itself; empty if the entry names the digest, or if it is unknown."""
    contract: dict[str, Plain] = Field(default_factory=dict)
    """The promises of the entry by their keys; empty if the entry is invalid."""
    operators: dict[str, dict[str, int]] = Field(default_factory=dict)
    """The nodes of each operator by opset; empty in files of older versions."""
    cells: Items[CellOutcome]
    dropped: dict[CellText, str] = Field(default_factory=dict)
    """The user's reason for each removed cell, until the cell is accepted again."""

    @model_validator(mode="after")
    def _reject_duplicates(self) -> Self:
        """Reject a cell that a merge duplicated: either outcome could be the accepted one."""
        _index_by_cell(self.cells)
        return self

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return canonical JSON with one sorted line per tool, promise and cell."""
        pad = " " * (indent or 0)

        def format_lines(entries: Iterable[str]) -> str:
            return ",".join(f"\n{2 * pad}{entry}" for entry in entries) + f"\n{pad}"

        def format_table(table: Mapping[str, object]) -> str:
            pairs = (f"{json.dumps(key)}: {json.dumps(table[key])}" for key in sorted(table))
            return f"{{{format_lines(pairs)}}}"

        cells = format_lines(
            json.dumps(outcome.model_dump(mode="json", exclude_defaults=True))
            for outcome in sorted(self.cells, key=lambda outcome: outcome.cell.sort_key)
        )
        reasons = {str(cell): reason for cell, reason in self.dropped.items()}
        parts = {
            "format": str(FORMAT),
            "tools": format_table(self.tools),
            "weights": self.weights and json.dumps(self.weights),
            "weights_sha256": self.weights_sha256 and json.dumps(self.weights_sha256),
            "contract": self.contract and format_table(self.contract),
            "operators": self.operators and format_table(self.operators),
            "cells": f"[{cells}]",
            "dropped": reasons and format_table(reasons),
        }
        lines = ",".join(f'\n{pad}"{key}": {text}' for key, text in parts.items() if text)
        return f"{{{lines}\n}}\n"


class Baseline(FrozenModel):
    """The accepted state of all models."""

    models: dict[str, AcceptedModel] = Field(default_factory=dict)

    def by_cell(self) -> dict[CellId, CellOutcome]:
        return {each.cell: each for each in self.cells}

    @property
    def cells(self) -> tuple[CellOutcome, ...]:
        return tuple(outcome for each in self.models.values() for outcome in each.cells)

    @property
    def dropped(self) -> dict[CellId, str]:
        return {cell: text for each in self.models.values() for cell, text in each.dropped.items()}

    @property
    def tools(self) -> dict[str, str]:
        """The versions of each tool: several if models were accepted with different ones."""
        versions: dict[str, dict[str, None]] = {}
        for model in self.models.values():
            for name, version in model.tools.items():
                versions.setdefault(name, {})[version] = None
        return {name: ", ".join(each) for name, each in sorted(versions.items())}

    @property
    def without_contract(self) -> list[str]:
        """The models whose entry was invalid at the acceptance."""
        return [name for name, each in self.models.items() if each.cells and not each.contract]


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
    known_metrics = [
        value
        for result in record.checks
        if "metric" in result.metrics and isinstance(value := result.metrics["metric"], int | float)
    ]
    measured = record.measurements or Measurements()
    return Figures.from_fields(
        artifact,
        thorough=record.thorough,
        is_short=bool(record.proved_on),
        domains=tuple(sorted(domains)),
        error=_find_largest(record, "of_limit"),
        largest_error=_find_largest(record, "max_abs"),
        metric=next((float(f"{value:.4g}") for value in known_metrics), None),
        latency=_round_ratio(measured.latency),
        load=_round_ratio(measured.load),
        memory=_round_ratio(measured.memory),
    )


def list_operators(run: RunRecord) -> dict[str, dict[str, dict[str, int]]]:
    """Return the nodes of each operator by model and opset, without files of `cpu@NAME`."""
    operators: dict[str, dict[str, dict[str, int]]] = {}
    for each in run.records:
        if each.artifact and not each.cell.device.suffix:
            known = operators.setdefault(each.cell.model, {})
            known.setdefault(str(each.cell.opset), dict(sorted(each.artifact.operators.items())))
    return operators


def _find_largest(record: Record, metric: str) -> float | None:
    """Return the largest figure of all checks with two digits; None if none or one is infinite."""
    values = [result.metrics[metric] for result in record.checks if metric in result.metrics]
    known = [float(each) for each in values if isinstance(each, int | float)]
    is_measured = known and all(map(math.isfinite, known))
    return float(f"{max(known):.2g}") if is_measured else None


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
    outcomes: Iterable[CellOutcome],
    find_state: Callable[[str], AcceptedModel],
    dropped: Mapping[CellId, str] = {},
) -> Baseline:
    """Return the baseline with its models and cells in order.

    `find_state` returns the state of a model by its ID.
    """
    cells: dict[str, list[CellOutcome]] = {}
    for outcome in sorted(outcomes, key=lambda outcome: outcome.cell.sort_key):
        cells.setdefault(outcome.cell.model, []).append(outcome)
    reasons: dict[str, dict[CellId, str]] = {}
    for cell, reason in dropped.items():
        reasons.setdefault(cell.model, {})[cell] = reason
    return Baseline(
        models={
            model_id: find_state(model_id).model_copy(
                update={
                    "cells": tuple(cells.get(model_id, ())),
                    "dropped": reasons.get(model_id, {}),
                }
            )
            for model_id in sorted(cells.keys() | reasons.keys())
        }
    )


def make_baseline(run: RunRecord) -> Baseline:
    """Return a baseline that accepts every record of the run.

    Raises:
        ExporterError: UNREADABLE if the run has two records for a cell.
    """
    state = AcceptedModel(tools=dict(sorted(run.tools.items())), cells=())
    return build_baseline(extract_outcomes(run).values(), lambda _: state)


def read_baseline(path: Path, name: str = "") -> Baseline:
    """Read the committed baseline, a folder or a file; messages call it `name`.

    Raises:
        ExporterError: RED if it does not exist, because a gate without a baseline must fail.
            UNREADABLE if it is damaged or has another format, with the problem of each file.
    """
    name = name or str(path)
    try:
        if not path.is_dir():
            return parse_baseline({name: read_regular_file(path, PROJECT_LIMIT)})
        paths = sorted(path.glob("*.json"))
        contents = (read_regular_file(each, CELL_LIMIT) for each in paths)
        names = (f"{name}/{each.name}" for each in paths)
        return parse_baseline(dict(zip(names, contents, strict=True)))
    except FileNotFoundError as error:
        message = f"{name}: no baseline yet; run `exporter baseline` to accept the current results"
        raise ExporterError(ExitCode.RED, message) from error
    except OSError as error:
        file = Path(name, Path(error.filename).name) if path.is_dir() else name
        message = f"{file}: cannot be read: {error.strerror}; restore it from git"
        raise ExporterError(ExitCode.UNREADABLE, message) from error


def rename_models(baseline: Baseline, renames: Mapping[str, str]) -> Baseline:
    """Return the baseline with the accepted state of renamed models under their new IDs.

    `renames`: The former ID -> the ID.
    """
    models = {renames.get(name, name): each for name, each in baseline.models.items()}
    for old, new in renames.items():
        if old in baseline.models:
            state = baseline.models[old]
            cells = [
                each.model_copy(update={"cell": each.cell.model_copy(update={"model": new})})
                for each in state.cells
            ]
            dropped = {
                cell.model_copy(update={"model": new}): text for cell, text in state.dropped.items()
            }
            update = {"cells": tuple(cells), "dropped": dropped}
            models[new] = state.model_copy(update=update)
    return Baseline(models=dict(sorted(models.items())))


def parse_baseline(files: Mapping[str, bytes]) -> Baseline:
    """Parse the contents of files by their names.

    Raises:
        ExporterError: UNREADABLE with the problem of each file that is damaged.
    """
    models: dict[str, AcceptedModel] = {}
    problems = []
    for name, content in files.items():
        try:
            models |= _parse_file(content, PurePath(name).stem)
            continue
        except ValidationError as error:
            text = f"{_INVALID}: {format_validation_error(error)}"
        except ValueError as error:
            text = str(error)
        problems.append(Problem(message=f"{name}: {text}"))
    if problems:
        raise ExporterError(ExitCode.UNREADABLE, problems)
    return Baseline(models=models)


@lru_cache(maxsize=1 << 12)  # two revisions of a project share most of their files
def _parse_file(content: bytes, name: str) -> Mapping[str, AcceptedModel]:
    if any(line.startswith(b"<<<<<<< ") for line in content.splitlines()):
        raise ValueError(_CONFLICT)
    file = AcceptedModel.model_validate_json(content)
    models = build_baseline(file.cells, lambda _: file, file.dropped).models
    if others := models.keys() - {name}:
        raise ValueError(f"has cells of {', '.join(sorted(others))}; a file has one model")
    return models


def write_baseline(folder: Path, baseline: Baseline) -> None:
    """Write the files of the baseline, each one atomically, and remove the others.

    Raises:
        ExporterError: ENVIRONMENT if a file cannot be written or removed.
    """
    paths = {folder / f"{model_id}.json": each for model_id, each in baseline.models.items()}
    for path, each in paths.items():
        write_text(path, each.to_json())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in {*folder.glob("*.json")} - paths.keys():
            path.unlink()
    except OSError as error:
        message = f"{folder}: cannot be written: {error.strerror}"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error


def _index_by_cell(outcomes: Iterable[CellOutcome]) -> dict[CellId, CellOutcome]:
    by_cell: dict[CellId, CellOutcome] = {}
    for outcome in outcomes:
        if outcome.cell in by_cell:
            raise ValueError(f"the cell {outcome.cell} twice")
        by_cell[outcome.cell] = outcome
    return by_cell
