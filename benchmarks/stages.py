"""What the worker's stages took, from the records of a run.

In: a project that was exported. Out: seconds, what cells share counted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from exporter.records.record import Record, read_run

#: Done once for all opsets of a model.
SHARED = ("source", "reference", "capture")
#: What no tool can do without, besides running the file: the model built and run in PyTorch,
#: captured, decomposed and translated, written and loaded.
IRREDUCIBLE = (*SHARED, "convert", "load")
#: The checks that run the file on the samples of its contract. Some 2 % of their time goes into
#: comparing outputs.
INFERENCE = ("parity", "axes", "cases", "values")


def records_of(root: Path) -> tuple[Record, ...]:
    """Every record of the last export."""
    return read_run(root / "build/results.json").records


def by_model(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The records of each model, the highest opset first: in this order they are made."""
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: -record.cell.opset):
        found.setdefault(record.cell.model, []).append(record)
    return found


def total(records: Sequence[Record], stages: Sequence[str] = ()) -> float:
    """Seconds of these stages, or of all."""
    return sum(
        shared_seconds(of_model, stages) + sum(own_seconds(record, stages) for record in of_model)
        for of_model in by_model(records).values()
    )


def inference(records: Iterable[Record]) -> float:
    """Seconds in which the files ran."""
    checks = (result for record in records for result in record.checks)
    return sum(result.seconds for result in checks if result.check in INFERENCE)


def shared_seconds(of_model: Sequence[Record], stages: Sequence[str] = ()) -> float:
    """What a model's cells share; a cell that needed more samples has more of the reference."""
    names = [name for name in SHARED if not stages or name in stages]
    return sum(max(record.seconds.get(name, 0.0) for record in of_model) for name in names)


def own_seconds(record: Record, stages: Sequence[str] = ()) -> float:
    """What one cell took by itself."""
    return sum(
        seconds
        for name, seconds in record.seconds.items()
        if name not in SHARED and (not stages or name in stages)
    )
