"""The loop of an audit: draw a mutant, write it, check it, search for an error that was missed."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import Message
from onnx import ModelProto

from benchmarks.audit.mutators.draft import apply_patches
from benchmarks.audit.mutators.mutants import Mutant, draw_mutants
from benchmarks.audit.results import Audit, MutantOutcome, MutantResult
from benchmarks.audit.verdict import find_first_failure, search_difference
from benchmarks.forked_calls import CallFailure, CallLimits, call_in_fork
from exporter.cache.artifact_integrity import SourceStamps
from exporter.cache.fingerprint import (
    CurrentState,
    compute_fingerprint,
    drop_tool_parts,
    hash_device,
)
from exporter.checks.model_file import read_model
from exporter.checks.protocol import CheckedFile
from exporter.core.files import PROJECT_LIMIT, read_regular_file
from exporter.core.text import join_lines
from exporter.jobs import JobFolder, Reference
from exporter.manifest import Device, Manifest
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.device_environments import locate_environments
from exporter.records.record import CellId, Record, Status
from exporter.runtimes.graph_walk import find_needed_names, index_functions
from exporter.worker.model.kernels import load_kernels

#: The time limit of a mutant: this multiple of the original's time, and these seconds more.
_TIME_FACTOR, _EXTRA_SECONDS = 10.0, 20.0
#: The search runs two files on many more inputs.
_SEARCH_FACTOR = 10
_MEMORY = 8 << 30


class AuditFailure(Exception):
    """The cell cannot be audited: mutants of a file that does not pass prove nothing."""


def audit_cell(manifest: Manifest, cell: CellId, mutants: int, seed: int) -> Audit:
    """Audit one cell.

    Raises:
        AuditFailure: If the cell has no valid result that passes.
    """
    build = BuildFolder.from_project(manifest.project)
    with build.lock():
        original, private = build.model_folder(cell.model), build.create_folder(cell.model)
        record = _find_passing_record(manifest, cell, original)
        _copy_files(record, original, private)
        auditor = _Auditor.start(manifest, cell, original, private)
        folder = auditor.mutant.folder.path
        results = []
        for mutant in draw_mutants(auditor.model, folder, mutants, seed):
            auditor.mutant.path.write_bytes(mutant.model.SerializeToString())
            with apply_patches(list(mutant.patches), folder):
                outcome, check, reason = auditor.judge(mutant, seed)
            result = MutantResult(
                kind=mutant.kind,
                change=mutant.change,
                outcome=outcome,
                check=check,
                reason=join_lines(reason),
            )
            results.append(result)
    return Audit(cell, tuple(results))


def _find_passing_record(manifest: Manifest, cell: CellId, folder: JobFolder) -> Record:
    record = folder.read_records().get(cell)
    # Tools may differ, because the current checks run on the file before it is changed.
    spec, project = manifest.find_model(cell.model), manifest.project
    parts = drop_tool_parts(compute_fingerprint(spec, project.environment, project.sandbox))
    parts["device"] = hash_device(manifest.project.find_device(cell.device))
    root = Path(project.root)
    stamps = SourceStamps(root / project.build)
    if record is None:
        problem = "it has no result; run `exporter export` first"
    elif stale := CurrentState(root, stamps).find_staleness_reason(record, parts):
        problem = f"{stale} since it was exported; run `exporter export` first"
    elif record.status is not Status.PASS:
        problem = f"its status is {record.status}, so a check would catch every mutant"
    else:
        return record
    raise AuditFailure(f"{cell}: cannot be audited: {problem}")


def _copy_files(record: Record, original: JobFolder, private: JobFolder) -> None:
    """Copy the files that the checks read; through a link, a mutant would change the original."""
    external = record.artifact.external_data if record.artifact else ()
    files = [original.model(record.cell.opset), original.reference]
    files += [original.path / name for name in external]
    for path in files:
        if path.parent != original.path or path.is_symlink():
            raise AuditFailure(f"{path}: is outside of the model's folder; export the model again")
        shutil.copyfile(path, private.path / path.name)
    for sample in original.path.glob("test_data_set_*"):
        shutil.copytree(sample, private.path / sample.name)
    weights = original.weight(0).parent
    if weights.is_dir() and not weights.is_symlink():
        shutil.copytree(weights, private.path / weights.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Auditor:
    device: Device
    mutant: CheckedFile
    original: CheckedFile
    model: ModelProto
    seconds: float
    """The time limit of one mutant."""

    @classmethod
    def start(
        cls, manifest: Manifest, cell: CellId, folder: JobFolder, private: JobFolder
    ) -> _Auditor:
        """Read the original file, run its checks and measure their time."""
        spec = manifest.find_model(cell.model).resolve_cell(cell.opset, cell.device)
        device = locate_environments(manifest.project).find_device(cell.device)
        reference = Reference.read(read_regular_file(folder.reference, PROJECT_LIMIT))
        mutant, original = (
            CheckedFile(
                folder=each,
                opset=cell.opset,
                spec=spec,
                reference=reference.select(folder.find_route(cell.opset)),
                kernels=load_kernels(spec, Path(manifest.project.root).resolve()),
                root=Path(manifest.project.root).resolve(),
            )
            for each in (private, folder)
        )
        start = time.monotonic()
        limits = CallLimits(seconds=spec.timeout, memory=_MEMORY)
        result = call_in_fork(lambda: find_first_failure(mutant, device), limits)
        problem = result.message if isinstance(result, CallFailure) else result.value
        if problem is not None:
            raise AuditFailure(f"{cell}: the file itself does not pass: {problem}")
        return cls(
            device=device,
            mutant=mutant,
            original=original,
            model=read_model(original.path),
            seconds=(time.monotonic() - start) * _TIME_FACTOR + _EXTRA_SECONDS,
        )

    def judge(self, mutant: Mutant, seed: int) -> tuple[MutantOutcome, str, str]:
        """Return the outcome of a mutant, the check that failed, and a reason."""
        checked = call_in_fork(
            lambda: find_first_failure(self.mutant, self.device),
            CallLimits(seconds=self.seconds, memory=_MEMORY),
        )
        if isinstance(checked, CallFailure):
            message = f"{checked.kind}: {checked.message}"
            # An export has more time and memory, so a mutant is not caught by these limits.
            if checked.kind in ("crash", "raised"):
                return MutantOutcome.CAUGHT, checked.kind, message
            return MutantOutcome.SURVIVED, "", message
        if checked.value is not None:
            return MutantOutcome.CAUGHT, checked.value.check, checked.value.message
        before, after = _serialize_live_parts(self.model), _serialize_live_parts(mutant.model)
        if before == after and not any(name in before for name in mutant.touched):
            return MutantOutcome.EQUIVALENT, "", "no output depends on it"
        searched = call_in_fork(
            lambda: search_difference(self.mutant, self.original, self.device, mutant, seed),
            CallLimits(seconds=_SEARCH_FACTOR * self.seconds, memory=2 * _MEMORY),
        )
        if isinstance(searched, CallFailure):
            message = f"on further inputs: {searched.kind}: {searched.message}"
            return MutantOutcome.SURVIVED, "", message
        return searched.value.outcome, "", searched.value.reason


def _serialize_live_parts(model: ModelProto) -> dict[str, bytes]:
    """Return the parts of the main graph that its outputs depend on, by name."""
    graph = model.graph
    outputs = (item.name for item in graph.output)
    needed = find_needed_names(graph.node, outputs, index_functions(model))
    nodes = [node for node in graph.node if not needed.isdisjoint(node.output)]
    live: dict[str, Message] = {f"node {i}": node for i, node in enumerate(nodes)}
    live |= {tensor.name: tensor for tensor in graph.initializer if tensor.name in needed}
    live |= {f"{i}": item for i, item in enumerate((*graph.input, *graph.output))}
    live |= {f"function {i}": function for i, function in enumerate(model.functions)}
    live |= {f"opset {item.domain}": item for item in model.opset_import}
    return {name: value.SerializeToString(deterministic=True) for name, value in live.items()}
