"""The operators of one model that its exporters lack, for each opset."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from exporter.jobs import OpsetJob
from exporter.manifest import ModelSpec
from exporter.manifest.syntax.values import NATIVE_OPSETS
from exporter.planning.plan import FIRST_DYNAMO_OPSET
from exporter.plugins.diagnosis.explanation import find_missing_operators, group_missing_nodes
from exporter.plugins.ops.operators import OperatorGaps, SurveyResponse
from exporter.records.record import Route
from exporter.worker.export.attempts import ExportContext, capture_program
from exporter.worker.export.convert import convert_module, convert_program
from exporter.worker.inputs.input_sets import choose_usual_sets
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.model.call_objects import load_custom_ops
from exporter.worker.model.exported_program import require_matching_inputs
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure, format_error
from exporter.worker.process.setup import apply_state
from exporter.worker.reference.python_state import ModelSnapshot
from exporter.worker.torch_private.graph_operators import Decompositions, find_untranslated_nodes
from exporter.worker.torch_private.guards import is_enabled


def find_operator_gaps(spec: ModelSpec, root: Path, routes: dict[int, Route]) -> SurveyResponse:
    """Return the missing operators of each exporter at each opset."""
    torch.set_num_threads(1)
    try:
        model = load_model(spec, root)
        require_matching_inputs(model, spec)
        custom = load_custom_ops(spec, root)
        inputs = draw_inputs(spec, choose_usual_sets(spec)[0], root)
    except Failure as failure:
        return SurveyResponse(gaps=(), problem=failure.message)
    contexts = [
        ExportContext(
            model=model,
            inputs=inputs,
            spec=spec.resolve_cell(opset),
            job=OpsetJob(opset=opset, route=route, devices=()),
            root=root,
            custom=custom,
        )
        for route, opset in _list_routes(spec, routes)
    ]
    gaps = [_convert_module(each) for each in contexts if each.route.exporter == "torchscript"]
    for capture in ("export", "strict", "draft"):
        gaps += _examine_captured([each for each in contexts if each.route.capture == capture])
    return SurveyResponse(gaps=tuple(sorted(gaps, key=lambda item: (item.opset, item.exporter))))


def _list_routes(spec: ModelSpec, planned: dict[int, Route]) -> Iterator[tuple[Route, int]]:
    """Yield the route of each opset, and the other exporter if the manifest allows both."""
    routes = {
        "torchscript": Route(exporter="torchscript", capture="trace", reason=""),
        "dynamo": Route(exporter="dynamo", capture="export", reason=""),
    }
    for opset, route in planned.items():
        if spec.component:
            continue  # another package exports it
        if route.is_export:
            yield route, opset
        if spec.resolve_cell(opset).capture is None:
            other = routes["torchscript" if route.exporter == "dynamo" else "dynamo"]
            first, last = NATIVE_OPSETS[other.exporter]
            if first <= opset <= last:
                yield other, opset


def _convert_module(context: ExportContext) -> OperatorGaps:
    """Convert the model with TorchScript's exporter and read the operators from its error."""
    state = ModelSnapshot(context.model)
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{context.opset}.onnx"
            convert_module(
                context.model, context.spec, context.inputs, context.opset, path, context.custom
            )
    except Failure as failure:
        state.restore()
        return _parse_failure(failure, context)
    finally:
        state.restore()
    return OperatorGaps(exporter="torchscript", opset=context.opset)


def _examine_captured(contexts: list[ExportContext]) -> list[OperatorGaps]:
    """Capture the program once and examine it at each opset."""
    if not contexts:
        return []
    first = contexts[0]
    state = ModelSnapshot(first.model)
    try:
        capture = first.route.capture
        strict, draft = capture == "strict", capture == "draft"
        program = capture_program(first.model, first.spec, first.inputs, strict=strict, draft=draft)
    except Failure as failure:
        problem = f"cannot be captured: {failure.message}"
        opsets = [context.opset for context in contexts]
        return [OperatorGaps(exporter="dynamo", opset=opset, problem=problem) for opset in opsets]
    finally:
        state.restore()
    shared = Decompositions()
    return [
        _examine_program(replace(context, program=program, decompositions=shared))
        for context in reversed(contexts)
    ]


def _examine_program(context: ExportContext) -> OperatorGaps:
    """Compare the program with the registry, or convert it if the registries are unknown."""
    opset = context.opset
    if not is_enabled("operators"):
        try:
            with tempfile.TemporaryDirectory() as folder:
                convert_program(
                    context.program,
                    context.spec,
                    opset,
                    Path(folder),
                    context.decompositions,
                    context.custom,
                )
        except Failure as failure:
            return _parse_failure(failure, context)
        return OperatorGaps(exporter="dynamo", opset=opset)
    try:
        with context.decompositions.reuse(), apply_state(context.spec):
            # Below its first opset, dynamo translates to that one and converts the file down.
            nodes = find_untranslated_nodes(
                context.program,
                max(opset, FIRST_DYNAMO_OPSET),
                context.custom.get_translations(opset),
            )
    except Exception as error:
        problem = f"cannot be decomposed: {format_error(error)}"
        return OperatorGaps(exporter="dynamo", opset=opset, problem=problem)
    missing = group_missing_nodes(nodes, context.root)
    return OperatorGaps(exporter="dynamo", opset=opset, missing=missing)


def _parse_failure(failure: Failure, context: ExportContext) -> OperatorGaps:
    """Return the operators that the error names, or the error itself if it names none."""
    text = f"{failure.__cause__ or ''}\n{failure.message}\n{failure.detail}"
    missing = find_missing_operators(text, context)
    return OperatorGaps(
        exporter=context.route.torch_exporter,
        opset=context.opset,
        missing=missing,
        problem="" if missing else failure.message,
    )
