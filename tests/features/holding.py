"""A row held against what comes of it.

In: a `Feature` and an empty folder. Out: in what the two differ; nothing where the row is right.
"""

from __future__ import annotations

from pathlib import Path

from exporter.core.errors import ExporterError
from exporter.records.record import Record, Status
from tests.features.feature import Feature, Standing
from tests.features.project import prove


def differences(feature: Feature, root: Path) -> list[str]:
    """Everything in which a row is wrong."""
    try:
        proof = prove(feature, root)
    except ExporterError as error:
        if feature.invalid and feature.invalid in str(error):
            return []
        return [f"the manifest is refused: {error}"]
    if feature.invalid:
        return ["the manifest is not refused"]
    if not proof.records:
        return ["nothing was exported"]
    found = [
        f"{record.cell}: {difference}"
        for record in proof.records
        for difference in feature.right(record).differences(record)
    ]
    found += _standing(feature, proof.records)
    if not found:  # a file that is not right need not be there
        found += [f"not so: {words}" for words, holds in feature.holds.items() if not holds(proof)]
    return found


def _standing(feature: Feature, records: tuple[Record, ...]) -> list[str]:
    """Where the word for the row promises more than its cells, or less."""
    green = {_exporter(record) for record in records if record.status.is_green}
    other = {_exporter(record) for record in records if not record.status.is_green}
    fits = {
        Standing.WORKS: not other,
        Standing.FROM_10: _is_green_from(10, records),
        Standing.FROM_11: _is_green_from(11, records),
        Standing.FROM_23: _is_green_from(23, records),
        Standing.TORCHSCRIPT: green == {"torchscript"},
        Standing.DYNAMO: green == {"dynamo"},
        Standing.CAUGHT: not green,
        Standing.UNPROVED: {record.status for record in records} == {Status.UNAVAILABLE},
        Standing.REFUSED: not green,
        Standing.INVALID: False,
    }
    return [] if fits[feature.standing] else [f"'{feature.standing}' is not what came of it"]


def _is_green_from(opset: int, records: tuple[Record, ...]) -> bool:
    """Whether what has that opset or a higher one is green, what is below it red, and both are."""
    above = [record.status.is_green for record in records if record.cell.opset >= opset]
    below = [record.status.is_green for record in records if record.cell.opset < opset]
    return bool(above and below) and all(above) and not any(below)


def _exporter(record: Record) -> str:
    return record.route.exporter if record.route is not None else ""
