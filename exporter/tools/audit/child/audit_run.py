"""The loop of an audit: draw a mutant, write it, check it, search for an error that was missed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import Message
from onnx import ModelProto

from exporter.cache.fingerprint import read_tool_versions
from exporter.checks.files.model_file import read_model
from exporter.checks.protocol import CheckContext
from exporter.core.regular_files import PROJECT_LIMIT, read_regular_file
from exporter.core.sanitize import join_lines
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference
from exporter.processes.forked_calls import CallFailure, CallLimits, call_in_fork
from exporter.records.audit import Audit, MutantOutcome
from exporter.runtimes import Kernels, load_kernels
from exporter.runtimes.graph_walk import find_needed_names, index_functions
from exporter.tools.audit.child.mutators.draft import apply_patches
from exporter.tools.audit.child.mutators.mutants import Mutant, draw_mutants
from exporter.tools.audit.child.verdict import find_first_failure, search_difference
from exporter.tools.audit.protocol import AuditRequest, MutantResult, summarize_audit

#: The time limit of a mutant: this multiple of the original's time, and these seconds more.
_TIME_FACTOR, _EXTRA_SECONDS = 10.0, 20.0
#: The search runs two files on many more inputs.
_SEARCH_FACTOR = 10
_MEMORY = 8 << 30


class InvalidBaselineFile(Exception):
    """The original file does not pass its own checks, so mutants of it prove nothing."""


def audit_cell(request: AuditRequest, on_progress: Callable[[int], None]) -> Audit:
    """Audit one cell.

    Args:
        request: The cell and the options.
        on_progress: Called with the number of finished mutants.

    Raises:
        InvalidBaselineFile: if the file does not pass, or its kernels or reference are missing.
    """
    auditor = _Auditor.start(request)
    folder = auditor.mutant.folder.path
    results: list[MutantResult] = []
    for mutant in draw_mutants(auditor.model, folder, request.mutants, request.seed):
        auditor.mutant.path.write_bytes(mutant.model.SerializeToString())
        with apply_patches(list(mutant.patches), folder):
            outcome, check, reason = auditor.judge(mutant)
        results.append(
            MutantResult(
                kind=mutant.kind,
                change=mutant.change,
                outcome=outcome,
                check=check,
                reason=join_lines(reason),
            )
        )
        on_progress(len(results))
    return summarize_audit(request, results, read_tool_versions())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Auditor:
    request: AuditRequest
    mutant: CheckContext
    original: CheckContext
    model: ModelProto
    seconds: float
    """The time limit of one mutant."""

    @classmethod
    def start(cls, request: AuditRequest) -> _Auditor:
        """Read the original file, run its checks and measure their time."""
        try:
            kernels = load_kernels(request.spec, Path(request.root))
        except Exception as error:
            message = join_lines(f"custom_ops: {type(error).__name__}: {error}")
            raise InvalidBaselineFile(message) from error
        mutant = _create_context(request, JobFolder(Path(request.folder)), kernels)
        original = _create_context(request, JobFolder(Path(request.original)), kernels)
        start = time.monotonic()
        result = call_in_fork(
            lambda: find_first_failure(mutant, request.device),
            CallLimits(seconds=request.spec.timeout, memory=_MEMORY),
        )
        if isinstance(result, CallFailure):
            raise InvalidBaselineFile(join_lines(f"{result.kind}: {result.message}"))
        if result.value is not None:
            raise InvalidBaselineFile(f"{result.value.check}: {result.value.message}")
        return cls(
            request=request,
            mutant=mutant,
            original=original,
            model=read_model(original.path),
            seconds=(time.monotonic() - start) * _TIME_FACTOR + _EXTRA_SECONDS,
        )

    def judge(self, mutant: Mutant) -> tuple[MutantOutcome, str, str]:
        """Return the outcome of a mutant, the check that failed, and a reason."""
        device, seed = self.request.device, self.request.seed
        checked = call_in_fork(
            lambda: find_first_failure(self.mutant, device),
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
            lambda: search_difference(self.mutant, self.original, device, mutant, seed),
            CallLimits(seconds=_SEARCH_FACTOR * self.seconds, memory=2 * _MEMORY),
        )
        if isinstance(searched, CallFailure):
            message = f"on further inputs: {searched.kind}: {searched.message}"
            return MutantOutcome.SURVIVED, "", message
        return searched.value.outcome, "", searched.value.reason


def _create_context(request: AuditRequest, folder: JobFolder, kernels: Kernels) -> CheckContext:
    try:
        reference = Reference.read(read_regular_file(folder.reference, PROJECT_LIMIT))
    except (OSError, ValueError) as error:
        message = "reference.json: cannot be read; export the model again"
        raise InvalidBaselineFile(message) from error
    return CheckContext(
        folder=folder,
        opset=request.cell.opset,
        spec=request.spec,
        reference=reference.select(folder.find_route(request.cell.opset)),
        kernels=kernels,
    )


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
