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

from exporter.cache.fingerprint import tool_versions
from exporter.checks.files.graph_walk import functions_of, needed_names
from exporter.checks.files.read import read_model
from exporter.checks.protocol import CheckContext
from exporter.core.sanitize import one_line
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference
from exporter.records.audit import Audit, Fate
from exporter.runtimes import Kernels, load_kernels
from exporter.tools.audit.child.forked_call import ChildEnd, in_process
from exporter.tools.audit.child.mutators.draft import applied
from exporter.tools.audit.child.mutators.mutants import Mutant, mutants
from exporter.tools.audit.child.verdict import first_failure, search
from exporter.tools.audit.protocol import AuditRequest, Tried, audit_of

#: A mutant may take so many times as long as the sound file, and these seconds more.
_SLOWER, _MORE = 10.0, 20.0
#: The search runs two files on many more inputs.
_SEARCH = 10
_MEMORY = 8 << 30


class InvalidBaselineFile(Exception):
    """The file does not pass its own checks: nothing can be said of mutants of it."""


def conduct(request: AuditRequest, heard: Callable[[int], None]) -> Audit:
    """Audits one cell.

    Args:
        request: The cell, and what to do with it.
        heard: Called with the count of mutants that are done.

    Raises:
        Unsound: where the file itself does not pass, or what it is checked with is not to be had.
    """
    tried: list[Tried] = []
    for one in _Auditor(request).tried():
        tried.append(one)
        heard(len(tried))
    return audit_of(request, tried, tool_versions())


class _Auditor:
    def __init__(self, request: AuditRequest) -> None:
        self._request = request
        self._folder = JobFolder(Path(request.folder))
        kernels = _kernels(request)
        self._subject = _subject(request, self._folder, kernels)
        self._original = _subject(request, JobFolder(Path(request.original)), kernels)
        self._model = read_model(self._original.path)
        self._seconds = self._measure()

    def tried(self) -> Iterator[Tried]:
        """Every mutant and its fate."""
        request = self._request
        for mutant in mutants(self._model, self._folder.path, request.mutants, request.seed):
            self._subject.path.write_bytes(mutant.model.SerializeToString())
            yield self._try(mutant)

    def _measure(self) -> float:
        """How long a mutant may take; the sound file must pass."""
        start = time.monotonic()
        done = in_process(
            lambda: first_failure(self._subject, self._request.device),
            self._request.spec.timeout,
            _MEMORY,
        )
        if isinstance(done, ChildEnd):
            raise InvalidBaselineFile(f"{done.how}: {done.message}")
        if done.value is not None:
            raise InvalidBaselineFile(f"{done.value.by}: {done.value.message}")
        return (time.monotonic() - start) * _SLOWER + _MORE

    def _try(self, mutant: Mutant) -> Tried:
        with applied(list(mutant.patches), self._folder.path):
            fate, by, why = self._judge(mutant)
        return Tried(kind=mutant.kind, change=mutant.change, fate=fate, by=by, why=why)

    def _judge(self, mutant: Mutant) -> tuple[Fate, str, str]:
        device = self._request.device
        checked = in_process(lambda: first_failure(self._subject, device), self._seconds, _MEMORY)
        if isinstance(checked, ChildEnd):
            # An export has more time and memory than a mutant gets: these limits are no verdict.
            is_caught = checked.how in ("crash", "raised")
            fate = Fate.CAUGHT if is_caught else Fate.SURVIVED
            return fate, checked.how if is_caught else "", f"{checked.how}: {checked.message}"
        if checked.value is not None:
            return Fate.CAUGHT, checked.value.by, checked.value.message
        if _is_equivalent(mutant, self._model):
            return Fate.EQUIVALENT, "", "no output depends on it"
        seed = self._request.seed
        searched = in_process(
            lambda: search(self._subject, self._original, device, mutant.rows, seed),
            _SEARCH * self._seconds,
            2 * _MEMORY,
        )
        if isinstance(searched, ChildEnd):
            return Fate.SURVIVED, "", f"on further inputs: {searched.how}: {searched.message}"
        return searched.value.fate, "", searched.value.why


def _kernels(request: AuditRequest) -> Kernels:
    """The kernels of custom operators, as the export had them."""
    try:
        return load_kernels(request.spec, Path(request.root))
    except Exception as error:
        raise InvalidBaselineFile(
            one_line(f"custom_ops: {type(error).__name__}: {error}")
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
    needed = needed_names(graph.node, (item.name for item in graph.output), functions_of(model))
    nodes = [n for n in graph.node if not needed.isdisjoint(n.output)]
    live: dict[str, Message] = {f"node {i}": node for i, node in enumerate(nodes)}
    live |= {tensor.name: tensor for tensor in graph.initializer if tensor.name in needed}
    live |= {f"{i}": item for i, item in enumerate((*graph.input, *graph.output))}
    live |= {f"function {i}": function for i, function in enumerate(model.functions)}
    live |= {f"opset {item.domain}": item for item in model.opset_import}
    return {name: value.SerializeToString(deterministic=True) for name, value in live.items()}
