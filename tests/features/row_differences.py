"""Compare a row with its export."""

from __future__ import annotations

from pathlib import Path

from exporter.core.errors import ExporterError
from exporter.records.record import Record
from tests.features.feature import Feature, Support
from tests.features.project import prove


def differences(feature: Feature, root: Path) -> list[str]:
    """Return every difference between a row and its export."""
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
    problems = [
        f"{record.cell}: {difference}"
        for record in proof.records
        for difference in feature.right(record).differences(record)
    ]
    problems += _support_differences(feature, proof.records)
    if not problems:  # a wrong file may be missing
        problems += [
            f"not so: {words}" for words, is_true in feature.facts.items() if not is_true(proof)
        ]
    return problems


def _support_differences(feature: Feature, records: tuple[Record, ...]) -> list[str]:
    """Return a problem if the support of the row does not fit its cells."""
    green = {_exporter(record) for record in records if record.status.is_green}
    other = {_exporter(record) for record in records if not record.status.is_green}
    fits = {
        Support.WORKS: not other,
        Support.FROM_10: _is_green_from(10, records),
        Support.FROM_11: _is_green_from(11, records),
        Support.FROM_23: _is_green_from(23, records),
        Support.TORCHSCRIPT: green == {"torchscript"},
        Support.DYNAMO: green == {"dynamo"},
    }
    if fits.get(feature.support, not green):
        return []
    return [f"'{feature.support}' is not what came of it"]


def _is_green_from(opset: int, records: tuple[Record, ...]) -> bool:
    """Return whether exactly the cells from this opset on are green; both kinds must exist."""
    above = [record.status.is_green for record in records if record.cell.opset >= opset]
    below = [record.status.is_green for record in records if record.cell.opset < opset]
    return bool(above and below) and all(above) and not any(below)


def _exporter(record: Record) -> str:
    return record.route.exporter if record.route is not None else ""
