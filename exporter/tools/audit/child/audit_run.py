"""The order of an audit: draw a mutant, write it, check it, search for what the checks missed.

In: a `PublishRequest`. Out: an `Audit`. The mutants lie in the private folder one after the other under
the name of the file, beside the weights and the samples, so that the checks see what they would
see in an export.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from google.protobuf.message import Message
from onnx import ModelProto

from exporter.cache.fingerprint import read_tool_versions
from exporter.checks.files.model_file import read_model
from exporter.checks.protocol import CheckContext
from exporter.core.sanitize import join_lines
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference
from exporter.processes.forked_calls import CallFailure, CallLimits, call_in_fork
from exporter.records.audit import Audit, MutantOutcome
from exporter.runtimes import Kernels, load_kernels
from exporter.runtimes.graph_walk import find_needed_names, index_functions
from exporter.tools.audit.child.mutators.draft import apply_patches
from exporter.tools.audit.child.mutators.mutants import Mutant, draw_mutants
from exporter.tools.audit.child.verdict import first_failure, search_difference
from exporter.tools.audit.protocol import AuditRequest, MutantResult, summarize_audit

#: A mutant may take so many times as long as the sound file, and these seconds more.
_SLOWER, _MORE = 10.0, 20.0
#: The search runs two files on many more inputs.
_SEARCH = 10
_MEMORY = 8 << 30


class InvalidBaselineFile(Exception):
    """The file does not pass its own checks: nothing can be said of mutants of it."""


def audit_cell(request: AuditRequest, heard: Callable[[int], None]) -> Audit:
    """Audits one cell.

    Args:
        request: The cell, and what to do with it.
        heard: Called with the count of mutants that are done.

    Raises:
        Unsound: where the file itself does not pass, or what it is checked with is not to be had.
    """
    tried: list[MutantResult] = []
    for one in _Auditor(request).tried():
        tried.append(one)
        heard(len(tried))
    return summarize_audit(request, tried, read_tool_versions())


class _Auditor:
    def __init__(self, request: AuditRequest) -> None:
        self._request = request
        self._folder = JobFolder(Path(request.folder))
        kernels = _kernels(request)
        self._subject = _subject(request, self._folder, kernels)
        self._original = _subject(request, JobFolder(Path(request.original)), kernels)
        self._model = read_model(self._original.path)
        self._seconds = self._measure()

    def tried(self) -> Iterator[MutantResult]:
        """Every mutant and its fate."""
        request = self._request
        for mutant in draw_mutants(self._model, self._folder.path, request.mutants, request.seed):
            self._subject.path.write_bytes(mutant.model.SerializeToString())
            yield self._try(mutant)

    def _measure(self) -> float:
        """How long a mutant may take; the sound file must pass."""
        start = time.monotonic()
        done = call_in_fork(
            lambda: first_failure(self._subject, self._request.device),
            CallLimits(seconds=self._request.spec.timeout, memory=_MEMORY),
        )
        if isinstance(done, CallFailure):
            raise InvalidBaselineFile(join_lines(f"{done.kind}: {done.message}"))
        if done.value is not None:
            raise InvalidBaselineFile(f"{done.value.by}: {done.value.message}")
        return (time.monotonic() - start) * _SLOWER + _MORE

    def _try(self, mutant: Mutant) -> MutantResult:
        with apply_patches(list(mutant.patches), self._folder.path):
            fate, by, why = self._judge(mutant)
        return MutantResult(kind=mutant.kind, change=mutant.change, fate=fate, by=by, why=why)

    def _judge(self, mutant: Mutant) -> tuple[MutantOutcome, str, str]:
        device = self._request.device
        checked = call_in_fork(
            lambda: first_failure(self._subject, device),
            CallLimits(seconds=self._seconds, memory=_MEMORY),
        )
        if isinstance(checked, CallFailure):
            # An export has more time and memory than a mutant gets: these limits are no verdict.
            is_caught = checked.kind in ("crash", "raised")
            fate = MutantOutcome.CAUGHT if is_caught else MutantOutcome.SURVIVED
            return (
                fate,
                checked.kind if is_caught else "",
                join_lines(f"{checked.kind}: {checked.message}"),
            )
        if checked.value is not None:
            return MutantOutcome.CAUGHT, checked.value.by, checked.value.message
        if _is_equivalent(mutant, self._model):
            return MutantOutcome.EQUIVALENT, "", "no output depends on it"
        seed = self._request.seed
        searched = call_in_fork(
            lambda: search_difference(self._subject, self._original, device, mutant.rows, seed),
            CallLimits(seconds=_SEARCH * self._seconds, memory=2 * _MEMORY),
        )
        if isinstance(searched, CallFailure):
            return (
                MutantOutcome.SURVIVED,
                "",
                join_lines(f"on further inputs: {searched.kind}: {searched.message}"),
            )
        return searched.value.fate, "", searched.value.why


def _kernels(request: AuditRequest) -> Kernels:
    """The kernels of custom operators, as the export had them."""
    try:
        return load_kernels(request.spec, Path(request.root))
    except Exception as error:
        raise InvalidBaselineFile(
            join_lines(f"custom_ops: {type(error).__name__}: {error}")
        ) from error


def _subject(request: AuditRequest, folder: JobFolder, kernels: Kernels) -> CheckContext:
    return CheckContext(
        folder=folder,
        opset=request.cell.opset,
        spec=request.spec,
        reference=_reference(folder),
        kernels=kernels,
    )


def _reference(folder: JobFolder) -> Reference:
    try:
        return Reference.read(folder.reference.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidBaselineFile(
            "reference.json cannot be read; export the model again"
        ) from error


def _is_equivalent(mutant: Mutant, model: ModelProto) -> bool:
    """Whether what the outputs depend on is the same: the change is in dead code."""
    before, after = _live(model), _live(mutant.model)
    return before == after and not any(name in before for name in mutant.touched)


def _live(model: ModelProto) -> dict[str, bytes]:
    """What the outputs of the main graph depend on, by name."""
    graph = model.graph
    needed = find_needed_names(
        graph.node, (item.name for item in graph.output), index_functions(model)
    )
    nodes = [n for n in graph.node if not needed.isdisjoint(n.output)]
    live: dict[str, Message] = {f"node {i}": node for i, node in enumerate(nodes)}
    live |= {tensor.name: tensor for tensor in graph.initializer if tensor.name in needed}
    live |= {f"{i}": item for i, item in enumerate((*graph.input, *graph.output))}
    live |= {f"function {i}": function for i, function in enumerate(model.functions)}
    live |= {f"opset {item.domain}": item for item in model.opset_import}
    return {name: value.SerializeToString(deterministic=True) for name, value in live.items()}
