"""Seconds of the worker's stages, from the records of an export.

Input: an exported project. Output: seconds; shared work of cells counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from exporter.records.record import Record, read_run

#: Stages that run once for all opsets of a model.
SHARED = ("source", "reference", "capture")
#: Work that no tool can avoid, except inference: build the model, run it in PyTorch, capture,
#: decompose and translate it, write and load the file.
IRREDUCIBLE = (*SHARED, "convert", "load")
#: Checks that run the file on the samples of its contract. About 2 % of their time is comparison.
INFERENCE = ("parity", "axes", "cases", "values")


def records_of(root: Path) -> tuple[Record, ...]:
    """Return every record of the last export."""
    return read_run(root / "build/results.json").records


def by_model(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return the records of each model, the highest opset first, as they are exported."""
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: -record.cell.opset):
        found.setdefault(record.cell.model, []).append(record)
    return found


def total(records: Sequence[Record], stages: Sequence[str] = ()) -> float:
    """Return the seconds of these stages, or of all."""
    return sum(
        shared_seconds(of_model, stages) + sum(own_seconds(record, stages) for record in of_model)
        for of_model in by_model(records).values()
    )


def inference(records: Iterable[Record]) -> float:
    """Return the seconds in which the files ran."""
    checks = (result for record in records for result in record.checks)
    return sum(result.seconds for result in checks if result.check in INFERENCE)


def shared_seconds(of_model: Sequence[Record], stages: Sequence[str] = ()) -> float:
    """Return the shared seconds of a model's cells, the largest if they differ."""
    names = [name for name in SHARED if not stages or name in stages]
    return sum(max(record.seconds.get(name, 0.0) for record in of_model) for name in names)


def own_seconds(record: Record, stages: Sequence[str] = ()) -> float:
    """Return the seconds of one cell."""
    return sum(
        seconds
        for name, seconds in record.seconds.items()
        if name not in SHARED and (not stages or name in stages)
    )
