"""What is known of every promised cell, from the records in the build folder.

In: the manifest, its plan, the records in the build folder. Out: a `RunRecord` of the records that
still hold, judged against the manifest's expectations, and why the others do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from exporter.build.folder.stored_records import StoredRecords
from exporter.cache.artifact_integrity import ArtifactVerifier
from exporter.cache.fingerprint import (
    CHECKS,
    compute_fingerprint,
    drop_tool_parts,
    hash_device,
    read_tool_versions,
)
from exporter.cache.staleness import DURING_EXPORT, CurrentState
from exporter.manifest import Manifest
from exporter.planning.expectations import apply_expectations
from exporter.planning.plan import Plan
from exporter.records.record import (
    CellId,
    Record,
    RunRecord,
    Status,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Every record that holds, and the planned cells that have none."""

    run: RunRecord
    missing: dict[str, str]
    """Why there is no record, by the text of the cell."""
    unchanged: bool = False
    """Whether every selected cell was left as it was."""
    restored: frozenset[str] = frozenset()
    """The cells that came from the store, by their text."""


def collect_results(plan: Plan, stored: StoredRecords, judge: RecordValidator) -> Results:
    """Judges the records of every planned cell, selected or not, with the files they speak of."""
    intact = ArtifactVerifier(stored.path)
    records: list[Record] = []
    missing: dict[str, str] = {}
    for planned in plan.cells:
        name = str(planned.cell)
        record = stored.of(planned.cell)
        if planned.skip:
            records.append(
                Record(
                    cell=planned.cell,
                    status=Status.SKIP,
                    message=planned.skip,
                    route=planned.route,
                )
            )
        elif record is None:
            missing[name] = stored.find_missing_reason(planned.cell)
        elif reason := judge.find_staleness_reason(record):
            missing[name] = _since(reason)
        elif record.artifact and (problem := intact.find_problem(record.artifact)):
            missing[name] = problem
        else:
            records.append(judge.apply_expectations(record))
    intact.save()
    records.sort(key=lambda record: record.cell.sort_key)
    return Results(
        run=RunRecord(tools=read_tool_versions(), records=tuple(records)), missing=missing
    )


def filter_valid_results(run: RunRecord, manifest: Manifest, plan: Plan) -> Results:
    """The records of an earlier run that a change of the entry or the model has not made void.

    Tools may differ: results are also read where no torch is installed.
    """
    known = run.by_cell()
    parts = FingerprintCache(manifest)
    today = CurrentState(Path(manifest.project.root))
    missing: dict[str, str] = {}
    for planned in plan.cells:
        name = str(planned.cell)
        if name not in known:
            missing[name] = "the last export left no current result of it"
        elif known[name].status is not Status.SKIP:
            reason = today.find_staleness_reason(
                known[name], drop_tool_parts(parts.of(planned.cell))
            )
            missing |= {name: _since(reason)} if reason else {}
    records = tuple(record for record in run.records if str(record.cell) not in missing)
    return Results(run=run.model_copy(update={"records": records}), missing=missing)


def _since(reason: str) -> str:
    return reason if reason.endswith(DURING_EXPORT) else f"{reason} since it was exported"


class FingerprintCache:
    """The fingerprints of today, each made when it is asked for."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._models: dict[str, dict[str, str]] = {}
        self._devices: dict[str, str] = {}

    def of(self, cell: CellId) -> dict[str, str]:
        """What a record of the cell has to say to be valid."""
        return self.model(cell.model) | {"device": self.device(cell.device)}

    def model(self, model: str) -> dict[str, str]:
        """The parts that the cells of a model share."""
        if model not in self._models:
            self._models[model] = compute_fingerprint(self._manifest.find_model(model))
        return self._models[model]

    def device(self, device: str) -> str:
        """The part of the cells on a device."""
        if device not in self._devices:
            self._devices[device] = hash_device(self._manifest.project.find_device(device))
        return self._devices[device]


class RecordValidator:
    """Holds raw records against the manifest of today."""

    def __init__(self, manifest: Manifest, today: date) -> None:
        self._manifest = manifest
        self._date = today
        self._today = CurrentState(Path(manifest.project.root))
        self.fingerprints = FingerprintCache(manifest)

    def find_staleness_reason(self, record: Record) -> str:
        """Why the record no longer speaks for its cell; empty where it does."""
        stale = self._today.find_staleness_reason(record, self.fingerprints.of(record.cell))
        return stale or self._today.find_changed_package_reason(record)

    def has_only_check_changes(self, record: Record) -> bool:
        """Whether the record would still speak for its cell if the checks read what they did."""
        parts = {p: v for p, v in self.fingerprints.of(record.cell).items() if p != CHECKS}
        return not (
            self._today.find_staleness_reason(record, parts)
            or self._today.find_changed_package_reason(record)
        )

    def holds(self, record: Record) -> bool:
        """Whether the record still speaks for its cell."""
        return not self.find_staleness_reason(record)

    def apply_expectations(self, record: Record) -> Record:
        """The record as it counts: a foreseen failure is one, and an unforeseen pass too."""
        return apply_expectations(self._manifest.find_model(record.cell.model), record, self._date)
