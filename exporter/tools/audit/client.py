"""The audit of one cell, from its files in the build folder to the counts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.cache.fingerprint import compute_fingerprint, drop_tool_parts, hash_device
from exporter.cache.staleness import CurrentState
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.sanitize import redact
from exporter.jobs.job_folder import JobFolder
from exporter.manifest import Manifest
from exporter.pipeline.device_environments import locate_environments
from exporter.pipeline.folder.build_folder import BuildFolder
from exporter.processes.request import send_request
from exporter.records.audit import Audit
from exporter.records.record import CellId, Record, Status
from exporter.tools.audit.protocol import AuditRequest

_MODULE = "exporter.tools.audit.child"
_MESSAGE_LENGTH = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """The number of mutants and the seed of their changes."""

    mutants: int
    seed: int


def run_audit(
    manifest: Manifest,
    cell: CellId,
    options: AuditOptions,
    environment: Mapping[str, str],
    on_progress: Callable[[int], None],
) -> Audit:
    """Audit one cell.

    Args:
        manifest: The project.
        cell: A cell that passed.
        options: The number of mutants, and the seed.
        environment: Variables of the process that creates and checks the mutants.
        on_progress: Called with the number of finished mutants.

    Raises:
        ExporterError: NOTHING_SELECTED if the cell has no valid result that passes; ENVIRONMENT if
            another run uses the build folder; BUG if the audit itself fails.
    """
    build = BuildFolder.from_project(manifest.project)
    with build.lock():
        original, private = build.model_folder(cell.model), build.create_folder(cell.model)
        record = _find_passing_record(manifest, cell, original)
        _copy_files(record, original, private)
        request = AuditRequest(
            cell=cell,
            spec=manifest.find_model(cell.model).resolve_cell(cell.opset, cell.device),
            device=locate_environments(manifest.project).find_device(cell.device),
            root=str(Path(manifest.project.root).resolve()),
            original=str(original.path.resolve()),
            folder=str(private.path.resolve()),
            mutants=options.mutants,
            seed=options.seed,
            entry=record.fingerprint.get("entry", ""),
        )
        result = send_request(
            _MODULE,
            request.to_json(),
            environment,
            timeout=request.spec.timeout,
            on_line=lambda line: on_progress(int(line)) if line.strip().isdigit() else None,
        )
    if result.code == 0 and result.response:
        return Audit.model_validate_json(result.response)
    log = redact(result.log, limit=_MESSAGE_LENGTH)
    if result.code == ExitCode.RED:
        message = f"{cell}: cannot be audited: the file itself does not pass: {log}"
        raise ExporterError(ExitCode.RED, message)
    reason = redact(result.describe_end(), limit=_MESSAGE_LENGTH)
    raise ExporterError(ExitCode.BUG, f"{cell}: the audit {reason}")


def _find_passing_record(manifest: Manifest, cell: CellId, folder: JobFolder) -> Record:
    record = folder.read_records().get(cell)
    # Tools may differ, because the current checks run on the file before it is changed.
    spec, project = manifest.find_model(cell.model), manifest.project
    parts = drop_tool_parts(compute_fingerprint(spec, project.environment, project.sandbox))
    parts["device"] = hash_device(manifest.project.find_device(cell.device))
    if record is None:
        problem = "it has no result; run `exporter export` first"
    elif stale := CurrentState(Path(manifest.project.root)).find_staleness_reason(record, parts):
        problem = f"{stale} since it was exported; run `exporter export` first"
    elif record.status is not Status.PASS:
        problem = f"its status is {record.status}, so a check would catch every mutant"
    else:
        return record
    raise ExporterError(ExitCode.NOTHING_SELECTED, f"{cell}: cannot be audited: {problem}")


def _copy_files(record: Record, original: JobFolder, private: JobFolder) -> None:
    """Copy the files that the checks read; through a link, a mutant would change the original."""
    external = record.artifact.external_data if record.artifact else ()
    files = [original.model(record.cell.opset), original.reference]
    files += [original.path / name for name in external]
    for path in files:
        if path.parent != original.path or path.is_symlink():
            message = (
                f"{path.name}: it is not inside the model's folder; run `exporter export` again"
            )
            raise ExporterError(ExitCode.UNREADABLE, message)
        shutil.copyfile(path, private.path / path.name)
    for sample in original.path.glob("test_data_set_*"):
        shutil.copytree(sample, private.path / sample.name)
    weights = original.weight(0).parent
    if weights.is_dir() and not weights.is_symlink():
        shutil.copytree(weights, private.path / weights.name)
