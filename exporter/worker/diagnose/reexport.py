"""A second export of the model, with the data that the first export discards."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from exporter.jobs import JobFolder
from exporter.manifest.rules.sources import COMMON_OPTIONS
from exporter.planning.plan import FIRST_DYNAMO_OPSET
from exporter.records.record import Route
from exporter.worker.export.attempts import (
    Captures,
    ExportContext,
    export_module,
    export_program,
    list_routes,
)
from exporter.worker.export.convert import translate_program
from exporter.worker.export.write_onnx import (
    list_state_names,
    move_weights_to_inputs,
    write_artifact,
)
from exporter.worker.process.failure import find_node_line
from exporter.worker.reference.python_state import ModelSnapshot

UNOPTIMIZED = {"optimize": False}
#: The highest opset of TorchScript's exporter.
_LAST_TORCHSCRIPT_OPSET = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReExport:
    """A second export."""

    path: Path
    program: Any | None = None
    """The decomposed program of dynamo."""
    lines: Mapping[str, str] = field(default_factory=dict)
    """The line of the model by the name of a value."""


def is_optimized(context: ExportContext) -> bool:
    """Return True if dynamo's graph optimizer changed the file."""
    spec = context.spec
    is_dynamo = context.route.exporter == "dynamo" and context.program is not None
    return is_dynamo and not spec.weights_are_inputs and spec.options.get("optimize", True) is True


@contextmanager
def repeat_export(
    context: ExportContext, folder: Path, *, optimize: bool = True
) -> Iterator[ReExport]:
    """Export again in the same way, or without dynamo's graph optimizer; the files are temporary.

    Raises:
        Failure: If this export fails.
    """
    with _create_scratch(folder) as scratch:
        program = None
        if context.route.exporter == "dynamo":
            options = context.spec.options if optimize else {**context.spec.options, **UNOPTIMIZED}
            exported = translate_program(
                context.program,
                context.spec.model_copy(update={"options": options}),
                context.opset,
                scratch,
                context.decompositions,
                context.custom,
            )
            graph, program = exported.model, exported.exported_program
        else:
            # With `verbose`, the file contains source lines. The graph is also printed to the log.
            options = {**context.spec.options, "verbose": True}
            spec = context.spec.model_copy(update={"options": options})
            current = replace(context, spec=spec)
            graph = _convert_by_torchscript(current, (context.route,), scratch)
        lines = {
            str(output.name): line
            for node in graph.graph
            if (line := find_node_line(node, context.root))
            for output in node.outputs
        }
        yield ReExport(path=_write(graph, context, scratch), program=program, lines=lines)


@contextmanager
def export_with_other_exporter(
    context: ExportContext, folder: Path, *, converts_opset: bool = False
) -> Iterator[ReExport | None]:
    """Export by the other exporter; None if it does not support the opset.

    `converts_opset`: Whether dynamo may convert its file down to the opset, possibly in vain.

    Raises:
        Failure: If this export fails.
    """
    by_dynamo = context.route.exporter == "torchscript"
    opset = context.opset
    first = 0 if converts_opset else FIRST_DYNAMO_OPSET
    if opset < first if by_dynamo else opset > _LAST_TORCHSCRIPT_OPSET:
        yield None
        return
    with _create_scratch(folder) as scratch:
        # Most options belong to one exporter only.
        options = {
            key: value for key, value in context.spec.options.items() if key in COMMON_OPTIONS
        }
        spec = context.spec.model_copy(update={"options": options, "capture": None})
        if by_dynamo:
            route = Route(exporter="dynamo", capture="export", reason="")
            routes = list_routes(spec, route, context.model)
            captures = Captures(context.model, spec, context.inputs, context.root)
            graph = export_program(replace(context, spec=spec), routes, captures, scratch).graph
        else:
            route = Route(exporter="torchscript", capture="trace", reason="")
            routes = list_routes(spec, route, context.model)
            graph = _convert_by_torchscript(replace(context, spec=spec), routes, scratch)
        yield ReExport(path=_write(graph, context, scratch))


def _convert_by_torchscript(
    context: ExportContext, routes: Sequence[Route], scratch: Path
) -> ir.Model:
    state = ModelSnapshot(context.model)
    try:
        return export_module(context, routes, scratch / "converted" / "model.onnx").graph
    finally:
        state.restore()


def _write(graph: ir.Model, context: ExportContext, scratch: Path) -> Path:
    if context.spec.weights_are_inputs:
        move_weights_to_inputs(graph, list_state_names(context.model))
    return write_artifact(graph, context.spec, context.opset, JobFolder(scratch), {})


@contextmanager
def _create_scratch(folder: Path) -> Iterator[Path]:
    path = folder / ".again"
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
