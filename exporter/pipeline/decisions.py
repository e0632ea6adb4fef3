"""Decide which selected cells run, are rechecked, restored or reused, and why.

A cell is reused if its record is up to date, a retry cannot change its status, and its files have
their recorded hashes. If validity is uncertain, the cell is rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from exporter.cache.artifact_integrity import ArtifactVerifier, SourceStamps
from exporter.cache.fingerprint import (
    CHECKS,
    DURING_EXPORT,
    ENTRY,
    ENVIRONMENT,
    CurrentState,
    compute_fingerprint,
    drop_check_parts,
    drop_tool_parts,
    format_environment_parts,
    hash_device,
    is_transient,
)
from exporter.cache.states import read_tool_parts, read_tool_versions
from exporter.core.device_name import DeviceName
from exporter.core.frozen_model import FrozenModel
from exporter.jobs import JobFolder, LinkState, get_link_parts
from exporter.manifest import Manifest
from exporter.pipeline.build_folder import (
    StoredRecords,
)
from exporter.pipeline.device_environments import locate_environment
from exporter.planning.plan import Plan, PlannedCell, apply_expectations, order_links_first
from exporter.records.record import CellId, Record, RunRecord, Status
from exporter.virtual_environments import find_environment


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
    other_tools: str = ""
    """The tools with another version than the current one: `torch 2.12.1 (here 2.13.0)`."""


class FingerprintCache:
    """The current fingerprints. Each is computed at its first use."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._models: dict[str, dict[str, str]] = {}
        self._devices: dict[str, dict[str, str]] = {}
        self._overlays: dict[str, str | None] = {}

    def get_cell_parts(self, cell: CellId) -> dict[str, str]:
        """Return the fingerprint of a cell.

        It contains no tools if the environment of the cell is not installed.
        """
        parts = self.get_model_parts(cell.model) | self.get_device_parts(cell.device)
        overlay = self.find_overlay(cell.device)
        if overlay == "":
            return parts
        return drop_tool_parts(parts) | (read_tool_parts(overlay) if overlay else {})

    def find_overlay(self, device_name: str) -> str | None:
        """Return the folder of the packages that a device's environment adds.

        Returns:
            The folder; "" if this process has the packages; None if they are not installed.
        """
        if device_name not in self._overlays:
            project = self._manifest.project
            definition = project.find_device(device_name).job_environment
            if definition is None or DeviceName(device_name).suffix == project.active_suffix:
                self._overlays[device_name] = ""
            else:
                installed = find_environment(definition, project.environments_folder)
                self._overlays[device_name] = str(installed.package_folder) if installed else None
        return self._overlays[device_name]

    def get_model_parts(self, model_id: str) -> dict[str, str]:
        if model_id not in self._models:
            spec, project = self._manifest.find_model(model_id), self._manifest.project
            self._models[model_id] = compute_fingerprint(
                spec, project.environment, project.sandbox, Path(project.root)
            )
        return self._models[model_id]

    def get_device_parts(self, name: str) -> dict[str, str]:
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
    """Compares records with the current manifest, files and packages."""

    def __init__(self, manifest: Manifest) -> None:
        self.fingerprints = FingerprintCache(manifest)
        self.manifest = manifest
        self._states: dict[str, CurrentState] = {}
        self._stamps = SourceStamps(Path(manifest.project.root) / manifest.project.build)

    def find_staleness_reason(self, record: Record) -> str:
        parts = self.fingerprints.get_cell_parts(record.cell)
        return self._find_reason(record, parts)

    def is_valid(self, record: Record) -> bool:
        return not self.find_staleness_reason(record)

    def has_only_check_changes(self, record: Record) -> bool:
        """Return True if nothing changed except the inputs of the checks or the device."""
        parts = self.fingerprints.get_cell_parts(record.cell)
        if self.has_own_runtime(record.cell):
            parts = drop_check_parts(parts)
        return not self._find_reason(record, {p: v for p, v in parts.items() if p != CHECKS})

    def has_own_runtime(self, cell: CellId) -> bool:
        """Return True if no module of the project can be a part of the cell's runtime."""
        device = self.manifest.project.find_device(cell.device)
        is_package = device.row.is_package and not device.provider_library
        return is_package or device.environment is not None

    def list_differences(self, record: Record) -> list[str]:
        """Return the packages and variables that are not as in the record, with both states."""
        return self._get_state(record).list_differences(record)

    def _get_state(self, record: Record) -> CurrentState:
        overlay = self.fingerprints.find_overlay(record.cell.device) or ""
        root = Path(self.manifest.project.root)
        return self._states.setdefault(overlay, CurrentState(root, self._stamps, overlay))

    def _find_reason(self, record: Record, parts: dict[str, str]) -> str:
        overlay = self.fingerprints.find_overlay(record.cell.device)
        if overlay is None and record.status is not Status.UNAVAILABLE:
            return f"the environment of {record.cell.device} was removed"
        state = self._get_state(record)
        reason = state.find_staleness_reason(record, parts)
        return reason or state.find_changed_package_reason(record)

    def find_lost_diagnosis(self, record: Record) -> str:
        """Return why the cause of a failure must be searched, or ""."""
        if not record.undiagnosed or self.apply_expectations(record).status is Status.XFAIL:
            return ""
        return "its failure is not as foreseen, and its cause was not searched"

    def apply_expectations(self, record: Record) -> Record:
        """Return the record with the status `xfail` or `xpass` if an expectation applies."""
        return apply_expectations(self.manifest.find_model(record.cell.model), record)


def find_link_states(
    manifest: Manifest, find: Callable[[CellId], Record | None], cell: CellId
) -> tuple[LinkState, ...]:
    """Return the current results of the links of a chain, in the cells of its opset and device.

    `find`: Return the valid record of a cell.
    """
    states = []
    for link in manifest.find_model(cell.model).chain:
        link_cell = cell.model_copy(update={"model": link.id})
        record = find(link_cell)
        state, problem = "missing", f"{link_cell} has no valid result"
        # A record of `results.json` has its expectations applied: an `xpass` is green by itself.
        if record and record.status in (Status.PASS, Status.XPASS) and record.artifact:
            state, problem = record.artifact.sha256, ""
        elif record:
            state = "unavailable" if record.status is Status.UNAVAILABLE else "red"
            problem = f"{link_cell} is {record.status}: {record.message}"
        states.append(LinkState(model=link.id, device=cell.device, state=state, problem=problem))
    return tuple(states)


def find_lost_proof(
    record: Record, manifest: Manifest, find: Callable[[CellId], Record | None]
) -> str:
    """Return why a record proves nothing without other records, or "" if those are valid.

    A short proof relies on that of another device, and a chain on the files of its links.

    `find`: Return the valid record of a cell.
    """
    for link in find_link_states(manifest, find, record.cell):
        parts = get_link_parts([link])
        if not parts.items() <= record.fingerprint.items():
            return f"its link {link.model} has another result or none"
    if not record.proved_on:
        return ""
    devices = manifest.find_model(record.cell.model).devices
    proving = record.cell.model_copy(update={"device": DeviceName(record.proved_on)})
    is_before = proving.device in devices[: devices.index(record.cell.device)]
    proof = find(proving) if is_before else None
    if proof and not proof.proved_on and proof.status in (Status.PASS, Status.XPASS):
        return ""
    return f"{record.proved_on}, which proved its file, is not valid, green and before it"


def collect_results(plan: Plan, stored: StoredRecords, validator: RecordValidator) -> Results:
    """Validate the records and files of all planned cells, selected or not."""
    verifier = ArtifactVerifier(stored.build.path)
    valid: dict[CellId, Record] = {}
    records: list[Record] = []
    missing: dict[CellId, str] = {}
    for planned in order_links_first(plan.cells):
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
        elif reason := find_lost_proof(record, validator.manifest, valid.get):
            missing[cell] = reason
        else:
            valid[cell] = record
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
    root = Path(manifest.project.root)
    state = CurrentState(root, SourceStamps(root / manifest.project.build))
    missing: dict[CellId, str] = {}
    valid: dict[CellId, Record] = {}
    known_parts: dict[tuple[str, str], dict[str, str]] = {}
    for planned in order_links_first(plan.cells):
        cell = planned.cell
        if cell not in by_cell:
            missing[cell] = "the last export left no current result of it"
        elif not (planned.skip and by_cell[cell].status is planned.skip_status):
            record, group = by_cell[cell], (cell.model, cell.device)
            if group not in known_parts:
                known_parts[group] = drop_tool_parts(fingerprints.get_cell_parts(cell))
                known_parts[group].pop(ENVIRONMENT)
            reason = state.find_changed_source_reason(record, known_parts[group])
            # Files beside the project in its repository; other machines have other packages.
            if reason := reason or state.find_changed_package_reason(record, "../"):
                missing[cell] = _add_period(reason)
            elif reason := find_lost_proof(record, manifest, valid.get):
                missing[cell] = reason
            else:
                valid[cell] = record
    records = tuple(record for record in run.records if record.cell not in missing)
    return Results(run=run.model_copy(update={"records": records}), missing=missing)


def drop_changed_files(results: Results, build_path: Path, *, is_complete: bool = False) -> Results:
    """Drop the results with a file that changed after its proof.

    If `is_complete`, a missing file is a change, too: results may be read without files.
    """
    verifier = ArtifactVerifier(build_path)
    missing = {
        record.cell: problem
        for record in results.run.records
        if record.artifact
        and (problem := verifier.find_problem(record.artifact))
        and (is_complete or (build_path / record.artifact.file).exists())
    }
    verifier.save()
    records = tuple(each for each in results.run.records if each.cell not in missing)
    run = results.run.model_copy(update={"records": records})
    return Results(run=run, missing=results.missing | missing)


def _add_period(reason: str) -> str:
    return reason if reason.endswith(DURING_EXPORT) else f"{reason} since it was exported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """The decisions of a build."""

    to_run: tuple[PlannedCell, ...]
    """In the order of the plan."""
    reasons: Mapping[CellId, str]
    """Why a cell runs."""
    rechecks: Mapping[CellId, str] = field(default_factory=dict)
    """The cells in `to_run` that are rechecked, and the models with their up-to-date files."""
    hits: Mapping[CellId, str] = field(default_factory=dict)
    """The cells that are restored from the cache of results, and why each would run without it."""

    def is_to_run(self, planned: PlannedCell) -> bool:
        return planned.cell in self.reasons


class StoreStatistics(FrozenModel):
    """The counts of one run. A cell is a hit in one place or a miss."""

    local_hits: int = 0
    remote_hits: int = 0
    misses: int = 0
    restored_bytes: int = 0
    """The size of the files of restored cells, in the build folder."""
    downloaded_bytes: int = 0
    uploaded_cells: int = 0
    uploaded_bytes: int = 0
    """The size of the files that the remote store did not have."""
    waited_seconds: float = 0.0
    """The time that the run waited for the remote store."""


class ResultCache(Protocol):
    """Results of other builds: of other branches, checkouts and machines."""

    path: Path
    """Its folder on this machine."""

    def find_hits(
        self,
        decisions: Decisions,
        stored: StoredRecords,
        validator: RecordValidator,
        *,
        thorough: bool,
    ) -> Decisions:
        """Return the decisions with `hits` for the cells that the cache has."""

    def get(
        self, decisions: Decisions, plan: Plan, stored: StoredRecords, validator: RecordValidator
    ) -> Decisions:
        """Copy the hits into the build folder. Return the decisions with a run for each failure."""

    def put(self, records: Collection[Record], job_folder: JobFolder) -> str:
        """Add valid results. Return why nothing is added from now on, once, or ""."""

    def take_notes(self) -> list[str]:
        """Return the messages since the last call."""

    def finish(self) -> list[str]:
        """Complete the use in this run, and return messages."""

    def make_statistics(self) -> StoreStatistics:
        """Return the counts of this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """The options of a build."""

    force: bool = False
    """Run all selected cells."""
    thorough: bool = False
    """Prove all selected cells thoroughly."""
    fail_fast: bool = False
    """Stop after the first model with a red cell."""
    store: ResultCache | None = None
    """The cache of finished cells, or None."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The environment variables of exports with other packages."""


DEFAULT_OPTIONS = BuildOptions()
#: Statuses of a cell whose file was checked, or can be if its device exists.
_CHECKED = (Status.PASS, Status.FAIL, Status.INCONCLUSIVE, Status.UNAVAILABLE)


def decide(
    plan: Plan,
    stored: StoredRecords,
    validator: RecordValidator,
    options: BuildOptions = DEFAULT_OPTIONS,
) -> Decisions:
    verifier = ArtifactVerifier(stored.build.path)
    reasons: dict[CellId, str] = {}
    find_valid = partial(find_valid_record, stored, validator, reasons)
    for planned in order_links_first(plan.to_run):
        cell = planned.cell
        record = stored.get(cell)
        if options.force:
            reasons[cell] = "a rebuild of every selected cell was requested"
        elif record is None:
            reasons[cell] = stored.find_missing_reason(cell)
        elif is_transient(record):
            reasons[cell] = f"its previous result was {record.status}"
        elif record.untracked:
            reasons[cell] = f"it depends on {record.untracked[0]}, which cannot be tracked"
        elif reason := validator.find_staleness_reason(record):
            reasons[cell] = reason
        elif problem := verifier.find_record_problem(record):
            reasons[cell] = problem
        elif options.thorough and not record.thorough:
            reasons[cell] = "it was not proved thoroughly"
        elif reason := (
            find_lost_proof(record, validator.manifest, find_valid)
            or validator.find_lost_diagnosis(record)
        ):
            reasons[cell] = reason
    rechecks = {} if options.force else _find_rechecks(reasons, stored, verifier, validator)
    verifier.save()
    former = {cell: model_id for cell, model_id in rechecks.items() if model_id != cell.model}
    reasons |= {cell: f"its entry was {model_id} before" for cell, model_id in former.items()}
    decisions = Decisions(
        to_run=tuple(planned for planned in plan.to_run if planned.cell in reasons),
        reasons=reasons,
        rechecks=rechecks,
    )
    if options.store is None or options.force or not decisions.to_run:
        return decisions
    return options.store.find_hits(decisions, stored, validator, thorough=options.thorough)


def find_valid_record(
    stored: StoredRecords, validator: RecordValidator, reasons: Container[CellId], cell: CellId
) -> Record | None:
    """Return the valid record of a cell that does not run, or None."""
    record = stored.get(cell) if cell not in reasons else None
    return record if record and validator.is_valid(record) else None


def _find_rechecks(
    cells: Iterable[CellId],
    stored: StoredRecords,
    verifier: ArtifactVerifier,
    validator: RecordValidator,
) -> dict[CellId, str]:
    """Return the cells whose file is up to date, and the model in whose folder it is.

    It can be the file of another device, or of the entry before it was renamed.
    """
    rechecks = {}
    for cell in cells:
        record, model_id = stored.get(cell), cell.model
        records = [record] if record else []
        if record is None and stored.build.owns(cell) and validator.has_own_runtime(cell):
            model_id = _find_former_name(model_id, stored, validator)
            by_cell = stored.get_model(model_id).by_cell
            same = [record for key, record in by_cell.items() if key.opset == cell.opset]
            update = {"model": cell.model}
            records = [
                each.model_copy(update={"cell": each.cell.model_copy(update=update)})
                for each in same
                if each.status is Status.PASS
            ]
        if any(_has_current_file(each, verifier, validator) for each in records):
            rechecks[cell] = model_id
    return rechecks


def _find_former_name(model_id: str, stored: StoredRecords, validator: RecordValidator) -> str:
    """Return the model with records of an equal entry that the manifests do not have any more."""
    if stored.get_model(model_id).by_cell:
        return model_id
    entry = validator.fingerprints.get_model_parts(model_id)[ENTRY]
    names = {path.parent.name for path in stored.build.path.glob("[!.]*/records")}
    for former in sorted(names - {spec.id for spec in validator.manifest.models}):
        records = stored.get_model(former).by_cell.values()
        if any(record.fingerprint.get(ENTRY) == entry for record in records):
            return former
    return model_id


def _has_current_file(
    record: Record, verifier: ArtifactVerifier, validator: RecordValidator
) -> bool:
    """Return True if a record needs new checks of its file at most."""
    is_checked = record.status in _CHECKED and record.artifact and not record.untracked
    return bool(
        is_checked
        and not verifier.find_record_problem(record)
        and validator.has_only_check_changes(record)
    )
