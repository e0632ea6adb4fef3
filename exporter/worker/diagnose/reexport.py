"""The model exported once more, in memory, with what the first export threw away.

In: a `ExportContext`. Out: `ReExport`: the graph as a file of its own, the program behind it, and for each
value the model's line. The other exporter's file too, where it has one for the opset.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx_ir as ir

from exporter.jobs.job_folder import JobFolder
from exporter.manifest.rules.exporters import COMMON_OPTIONS
from exporter.planning.plan import FIRST_DYNAMO_OPSET
from exporter.worker.diagnose.source_lines import find_source_line
from exporter.worker.export.capture import capture_program
from exporter.worker.export.convert import convert_module, convert_program, translate_program
from exporter.worker.export.export_context import ExportContext
from exporter.worker.export.weights_as_inputs import list_state_names, move_weights_to_inputs
from exporter.worker.export.write_onnx import write_artifact
from exporter.worker.reference.eager_run import BufferSnapshot
from exporter.worker.torch_private.decompositions import Decompositions
from exporter.worker.torch_private.export_speedups import STACK_TRACE_KEY

#: TorchScript's exporter is written for opsets up to this one.
_LAST_TORCHSCRIPT_OPSET = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReExport:
    """A second export."""

    path: Path
    program: Any | None = None
    """Decomposed, under dynamo."""
    lines: Mapping[str, str] = field(default_factory=dict)
    """The model's line, by the name of a value."""


@contextmanager
def repeat_export(case: ExportContext, folder: Path) -> Iterator[ReExport]:
    """The same export; its files are gone afterwards.

    Raises:
        Failure: where it fails this time.
    """
    with _scratch(folder) as scratch:
        program = None
        if case.route.exporter == "dynamo":
            made = translate_program(
                case.program, case.spec, case.opset, scratch, case.decompositions, case.custom
            )
            graph, program = made.model, made.exported_program
        else:
            # Verbose, it leaves source lines in the file (and prints the graph into the log).
            spec = case.spec.model_copy(update={"options": {**case.spec.options, "verbose": True}})
            graph = _by_torchscript(case, spec, scratch)
        lines = dict(_lines(graph, case.root))
        yield ReExport(path=_write(graph, case, scratch), program=program, lines=lines)


@contextmanager
def export_with_other_exporter(case: ExportContext, folder: Path) -> Iterator[ReExport | None]:
    """The file of the other exporter at the same opset; None where it has none for that.

    Raises:
        Failure: where it fails.
    """
    by_dynamo = case.route.exporter == "torchscript"
    if case.opset < FIRST_DYNAMO_OPSET if by_dynamo else case.opset > _LAST_TORCHSCRIPT_OPSET:
        yield None
        return
    with _scratch(folder) as scratch:
        # Options belong to one exporter: the other gets none of its own, and what both take.
        both = {key: value for key, value in case.spec.options.items() if key in COMMON_OPTIONS}
        spec = case.spec.model_copy(update={"options": both, "capture": None})
        if by_dynamo:
            state = BufferSnapshot(case.model)
            try:
                program = capture_program(case.model, spec, case.inputs, strict=False)
            finally:
                state.restore()
            graph = convert_program(
                program, spec, case.opset, scratch, Decompositions(), case.custom
            )
        else:
            graph = _by_torchscript(case, spec, scratch)
        yield ReExport(path=_write(graph, case, scratch))


def _by_torchscript(case: ExportContext, spec: Any, scratch: Path) -> ir.Model:
    state = BufferSnapshot(case.model)
    try:
        made = scratch / "made" / "model.onnx"
        graph, _ = convert_module(case.model, spec, case.inputs, case.opset, made, case.custom)
    finally:
        state.restore()
    return graph


def _write(graph: ir.Model, case: ExportContext, scratch: Path) -> Path:
    if case.spec.weights_are_inputs:
        move_weights_to_inputs(graph, list_state_names(case.model))
    return write_artifact(graph, case.spec, case.opset, JobFolder(scratch), {})


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    path = folder / ".again"
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _lines(graph: ir.Model, root: Path) -> Iterator[tuple[str, str]]:
    for node in graph.graph:
        trace = node.metadata_props.get(STACK_TRACE_KEY) or node.doc_string or ""
        line = find_source_line(trace, root) if trace else ""
        if line:
            for output in node.outputs:
                yield str(output.name), line
