"""Validate records against the manifest and collect them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from exporter.cache.artifact_integrity import ArtifactVerifier
from exporter.cache.fingerprint import (
    CHECKS,
    DURING_EXPORT,
    ENVIRONMENT,
    CurrentState,
    compute_fingerprint,
    drop_tool_parts,
    format_environment_parts,
    hash_device,
)
from exporter.cache.states import read_tool_parts, read_tool_versions
from exporter.environments.installation import find_environment
from exporter.manifest import Manifest
from exporter.manifest.syntax.values import split_device
from exporter.pipeline.environments import locate_environment
from exporter.pipeline.folder.stored_records import StoredRecords
from exporter.planning.expectations import apply_expectations
from exporter.planning.plan import Plan
from exporter.records.record import CellId, Record, RunRecord, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All valid records, and the planned cells without one."""

    run: RunRecord
    missing: dict[CellId, str]
    """The reason for each of these cells."""
    unchanged: bool = False
    """True if no selected cell was run or restored."""
    restored: frozenset[CellId] = frozenset()
    """The cells that were restored from the store."""


class FingerprintCache:
    """The current fingerprints. Each is computed at its first use."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._models: dict[str, dict[str, str]] = {}
        self._devices: dict[str, dict[str, str]] = {}
        self._overlays: dict[str, str | None] = {}

    def get_cell_parts(self, cell: CellId) -> dict[str, str]:
        """Return the fingerprint of a cell.

        It contains no tools if the cell's toolchain is not installed.
        """
        parts = self.get_model_parts(cell.model) | self.get_device_parts(cell.device)
        overlay = self.find_overlay(cell.device)
        if overlay == "":
            return parts
        return drop_tool_parts(parts) | (read_tool_parts(overlay) if overlay else {})

    def find_overlay(self, device: str) -> str | None:
        """Return the folder of the packages that a device's toolchain adds.

        Returns:
            The folder; "" if this process has the packages; None if they are not installed.
        """
        if device not in self._overlays:
            project = self._manifest.project
            toolchain = project.find_device(device).toolchain
            if toolchain is None or toolchain.name == project.active_toolchain:
                self._overlays[device] = ""
            else:
                folder = project.environments_folder
                installed = find_environment(toolchain.definition, folder)
                self._overlays[device] = str(installed.package_folder) if installed else None
        return self._overlays[device]

    def get_model_parts(self, model: str) -> dict[str, str]:
        """Return the parts that all cells of a model share."""
        if model not in self._models:
            spec, project = self._manifest.find_model(model), self._manifest.project
            self._models[model] = compute_fingerprint(spec, project.environment, project.sandbox)
        return self._models[model]

    def get_device_parts(self, name: str) -> dict[str, str]:
        """Return the parts of the cells on a device."""
        if name not in self._devices:
            project = self._manifest.project
            device = project.find_device(name)
            environment = device.environment
            if environment is not None:
                environment = locate_environment(project, environment)
            parts = format_environment_parts(environment)
            self._devices[name] = {"device": hash_device(device), **parts}
        return self._devices[name]

    def forget_devices(self) -> None:
        """Read the packages of the devices again, after environments were created."""
        self._devices.clear()
        self._overlays.clear()


class RecordValidator:
    """Compares records with the current manifest, files and packages.

    Args:
        manifest: The project.
        today: The date for expectations.
    """

    def __init__(self, manifest: Manifest, today: date) -> None:
        self.fingerprints = FingerprintCache(manifest)
        self._manifest = manifest
        self._today = today
        self._states: dict[str, CurrentState] = {}

    def find_staleness_reason(self, record: Record) -> str:
        """Return why a record is stale, or "" if it is up to date."""
        parts = self.fingerprints.get_cell_parts(record.cell)
        return self._find_reason(record, parts)

    def is_valid(self, record: Record) -> bool:
        """Return True if a record is up to date."""
        return not self.find_staleness_reason(record)

    def has_only_check_changes(self, record: Record) -> bool:
        """Return True if nothing changed except the inputs of the checks."""
        parts = self.fingerprints.get_cell_parts(record.cell)
        return not self._find_reason(record, {p: v for p, v in parts.items() if p != CHECKS})

    def list_differences(self, record: Record) -> list[str]:
        """Return the packages and variables that are not as in the record, with both states."""
        return self._get_state(record).list_differences(record)

    def _get_state(self, record: Record) -> CurrentState:
        overlay = self.fingerprints.find_overlay(record.cell.device) or ""
        root = Path(self._manifest.project.root)
        return self._states.setdefault(overlay, CurrentState(root, overlay))

    def _find_reason(self, record: Record, parts: dict[str, str]) -> str:
        overlay = self.fingerprints.find_overlay(record.cell.device)
        if overlay is None and record.status is not Status.UNAVAILABLE:
            return f"its toolchain {split_device(record.cell.device)[1]} was removed"
        state = self._get_state(record)
        reason = state.find_staleness_reason(record, parts)
        return reason or state.find_changed_package_reason(record)

    def apply_expectations(self, record: Record) -> Record:
        """Return the record with the status `xfail` or `xpass` if an expectation applies."""
        return apply_expectations(self._manifest.find_model(record.cell.model), record, self._today)


def collect_results(plan: Plan, stored: StoredRecords, validator: RecordValidator) -> Results:
    """Validate the records and files of all planned cells, selected or not."""
    verifier = ArtifactVerifier(stored.build.path)
    records: list[Record] = []
    missing: dict[CellId, str] = {}
    for planned in plan.cells:
        cell = planned.cell
        record = stored.get(cell)
        if planned.skip:
            records.append(
                Record(
                    cell=cell,
                    status=planned.skip_status,
                    message=planned.skip,
                    route=planned.route,
                )
            )
        elif record is None:
            missing[cell] = stored.find_missing_reason(cell)
        elif reason := validator.find_staleness_reason(record):
            missing[cell] = _add_period(reason)
        elif record.artifact and (problem := verifier.find_problem(record.artifact)):
            missing[cell] = problem
        else:
            records.append(validator.apply_expectations(record))
    verifier.save()
    records.sort(key=lambda record: record.cell.sort_key)
    run = RunRecord(tools=read_tool_versions(), records=tuple(records))
    return Results(run=run, missing=missing)


def filter_valid_results(run: RunRecord, manifest: Manifest, plan: Plan) -> Results:
    """Drop the records of an earlier run that a change of entry, model or device made stale.

    Tools and environment variables are not compared, because results are also read on machines
    without torch, and in other jobs of CI.
    """
    by_cell = run.by_cell()
    fingerprints = FingerprintCache(manifest)
    state = CurrentState(Path(manifest.project.root))
    missing: dict[CellId, str] = {}
    for planned in plan.cells:
        cell = planned.cell
        if cell not in by_cell:
            missing[cell] = "the last export left no current result of it"
        elif not (planned.skip and by_cell[cell].status is planned.skip_status):
            parts = drop_tool_parts(fingerprints.get_cell_parts(cell))
            parts.pop(ENVIRONMENT)
            record = by_cell[cell].model_copy(update={"variables": {}})
            if reason := state.find_staleness_reason(record, parts):
                missing[cell] = _add_period(reason)
    records = tuple(record for record in run.records if record.cell not in missing)
    return Results(run=run.model_copy(update={"records": records}), missing=missing)


def drop_changed_files(results: Results, build: Path, *, is_complete: bool = False) -> Results:
    """Drop the results with a file that changed after its proof.

    Args:
        results: The results.
        build: The build folder.
        is_complete: True if a missing file is a change, too. Results may be read without files.
    """
    verifier = ArtifactVerifier(build)
    missing = {
        record.cell: problem
        for record in results.run.records
        if record.artifact
        and (problem := verifier.find_problem(record.artifact))
        and (is_complete or (build / record.artifact.file).exists())
    }
    records = tuple(each for each in results.run.records if each.cell not in missing)
    run = results.run.model_copy(update={"records": records})
    return Results(run=run, missing=results.missing | missing)


def _add_period(reason: str) -> str:
    return reason if reason.endswith(DURING_EXPORT) else f"{reason} since it was exported"
