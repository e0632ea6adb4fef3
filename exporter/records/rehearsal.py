"""The stored results of a rehearsed upgrade: `reports/rehearsals/NAME.json`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import write_text
from exporter.core.frozen_model import FrozenModel, Items
from exporter.records.baseline import CellOutcome, extract_outcome
from exporter.records.record import CellId, Record, RunRecord, format_validation_error

#: The folder in the reports folder.
REHEARSALS = "rehearsals"
#: The name of a kept rehearsal, which is its column in the tables.
NAME_PATTERN = r"[a-z0-9][a-z0-9_.-]*"
#: The prefix of the versions of tools in a fingerprint.
_TOOL_PREFIX = "tool."


class RehearsedCell(FrozenModel):
    """The outcome of one cell with the other packages."""

    outcome: CellOutcome
    inputs: str
    """The hash of everything else that the result depends on, or "" if it is unknown."""


class Rehearsal(FrozenModel):
    """The outcomes of the selected cells with other packages."""

    format: Literal[1] = 1
    requirements: Items[str]
    tools: dict[str, str]
    cells: Items[RehearsedCell]

    def by_cell(self) -> dict[CellId, RehearsedCell]:
        """Return the outcomes by their cell."""
        return {each.outcome.cell: each for each in self.cells}

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return canonical JSON with one line per cell."""
        cells = sorted(self.cells, key=lambda each: each.outcome.cell.sort_key)
        lines = ",\n    ".join(
            json.dumps(each.model_dump(mode="json", exclude_defaults=True)) for each in cells
        )
        return (
            "{\n"
            f'  "format": {self.format},\n'
            f'  "requirements": {json.dumps(self.requirements)},\n'
            f'  "tools": {json.dumps(dict(sorted(self.tools.items())))},\n'
            f'  "cells": [\n    {lines}\n  ]\n'
            "}\n"
        )


def make_rehearsal(
    requirements: Sequence[str], run: RunRecord, in_place: Mapping[CellId, Record]
) -> Rehearsal:
    """Return the stored form of a rehearsal."""
    return Rehearsal(
        requirements=tuple(requirements),
        tools=run.tools,
        cells=tuple(
            RehearsedCell(outcome=extract_outcome(record), inputs=hash_inputs(in_place.get(cell)))
            for cell, record in run.by_cell().items()
        ),
    )


def hash_inputs(record: Record | None) -> str:
    """Return a hash of a record's dependencies without the tools, or "" without a record."""
    if record is None:
        return ""
    parts = sorted(
        item for item in record.fingerprint.items() if not item[0].startswith(_TOOL_PREFIX)
    )
    sources = sorted((each.file, each.state) for each in record.sources)
    return hashlib.sha256(json.dumps([parts, sources]).encode()).hexdigest()[:16]


def locate_rehearsal(reports: Path, name: str) -> Path:
    """Return the path of a kept rehearsal."""
    return reports / REHEARSALS / f"{name}.json"


def read_rehearsals(reports: Path) -> dict[str, Rehearsal]:
    """Return all kept rehearsals by their name.

    Raises:
        ExporterError: UNREADABLE, if a file is damaged or has another format.
    """
    rehearsals = {}
    for path in sorted((reports / REHEARSALS).glob("*.json")):
        try:
            rehearsals[path.stem] = Rehearsal.model_validate_json(path.read_bytes())
        except OSError as error:
            message = f"{path}: cannot be read: {error.strerror}"
            raise ExporterError(ExitCode.UNREADABLE, message) from error
        except ValidationError as error:
            message = (
                f"{path}: is no rehearsal of this version: {format_validation_error(error)}; run "
                f"`exporter rehearse` with `--keep {path.stem}` again or remove the file"
            )
            raise ExporterError(ExitCode.UNREADABLE, message) from error
    return rehearsals


def write_rehearsal(reports: Path, name: str, rehearsal: Rehearsal) -> Path:
    """Write a rehearsal and return its path.

    Raises:
        ExporterError: ENVIRONMENT if it cannot be written.
    """
    path = locate_rehearsal(reports, name)
    write_text(path, rehearsal.to_json())
    return path
