"""All operators of one model that its exporters lack, opset by opset, without a file.

In: a `SurveyRequest`. Out: `SurveyResponse`. TorchScript converts the model and throws the graph away, because
some of its functions refuse what they are registered for. Dynamo captures it once, and the
registry of each opset is held against the program.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from exporter.jobs.job import OpsetJob
from exporter.manifest.syntax.opsets import NATIVE_OPSETS
from exporter.planning.plan import FIRST_DYNAMO_OPSET
from exporter.records.record import Route
from exporter.tools.operators.protocol import OperatorGaps, SurveyRequest, SurveyResponse
from exporter.worker.diagnose.missing_operators import find_missing_operators, group_missing_nodes
from exporter.worker.export.capture import capture_program
from exporter.worker.export.convert import convert_module, convert_program
from exporter.worker.export.export_context import ExportContext
from exporter.worker.inputs.input_sets import choose_usual_sets
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.model.custom_ops import load_custom_ops
from exporter.worker.model.program_signature import require_matching_inputs
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure, format_error
from exporter.worker.reference.eager_run import BufferSnapshot
from exporter.worker.torch_private.decompositions import Decompositions
from exporter.worker.torch_private.graph_operators import find_untranslated_nodes
from exporter.worker.torch_private.guards import is_enabled


def find_operator_gaps(survey: SurveyRequest) -> SurveyResponse:
    """Answers; a failing model is an answer too."""
    root = Path(survey.root)
    try:
        model = load_model(survey.spec, root)
        require_matching_inputs(model, survey.spec)
        custom = load_custom_ops(survey.spec, root)
        inputs = draw_inputs(survey.spec, choose_usual_sets(survey.spec)[0], root)
    except Failure as failure:
        return SurveyResponse(found=(), problem=failure.message)
    cases = [
        ExportContext(
            model=model,
            inputs=inputs,
            spec=survey.spec.resolve_cell(opset),
            job=OpsetJob(opset=opset, route=route, devices=()),
            root=root,
            custom=custom,
        )
        for route, opset in _asked(survey)
    ]
    found = [_by_torchscript(case) for case in cases if case.route.exporter == "torchscript"]
    for capture in ("export", "strict"):
        found += _by_dynamo([case for case in cases if case.route.capture == capture])
    return SurveyResponse(found=tuple(sorted(found, key=lambda item: (item.opset, item.exporter))))


def _asked(survey: SurveyRequest) -> Iterator[tuple[Route, int]]:
    """The exporter of each opset, and the other one where both are free to make it."""
    for opset, route in survey.routes.items():
        yield route, opset
        if survey.spec.resolve_cell(opset).capture is None:
            other = _other(route)
            first, last = NATIVE_OPSETS[other.exporter]
            if first <= opset <= last:
                yield other, opset


def _other(route: Route) -> Route:
    if route.exporter == "dynamo":
        return Route(exporter="torchscript", capture="trace", why="")
    return Route(exporter="dynamo", capture="export", why="")


def _by_torchscript(case: ExportContext) -> OperatorGaps:
    state = BufferSnapshot(case.model)
    try:
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder) / f"{case.opset}.onnx"
            convert_module(case.model, case.spec, case.inputs, case.opset, scratch, case.custom)
    except Failure as failure:
        state.restore()
        return _told(failure, case)
    finally:
        state.restore()
    return OperatorGaps(exporter="torchscript", opset=case.opset)


def _by_dynamo(cases: list[ExportContext]) -> list[OperatorGaps]:
    """All of these opsets by one capture, the same for all of them."""
    if not cases:
        return []
    state = BufferSnapshot(cases[0].model)
    strict = cases[0].route.capture == "strict"
    try:
        program = capture_program(cases[0].model, cases[0].spec, cases[0].inputs, strict=strict)
    except Failure as failure:
        problem = f"cannot be captured: {failure.message}"
        return [OperatorGaps(exporter="dynamo", opset=case.opset, problem=problem) for case in cases]
    finally:
        state.restore()
    kept = Decompositions()
    return [_of_program(replace(case, program=program, decompositions=kept)) for case in reversed(cases)]


def _of_program(case: ExportContext) -> OperatorGaps:
    if not is_enabled("operators"):
        return _of_conversion(case)
    try:
        with case.decompositions.reuse():
            # Below its first opset, dynamo translates to that one and has the file converted down.
            opset = max(case.opset, FIRST_DYNAMO_OPSET)
            nodes = find_untranslated_nodes(case.program, opset, case.custom.get_translations(case.opset))
    except Exception as error:
        problem = f"cannot be decomposed: {format_error(error)}"
        return OperatorGaps(exporter="dynamo", opset=case.opset, problem=problem)
    missing = group_missing_nodes(nodes, case.root)
    return OperatorGaps(exporter="dynamo", opset=case.opset, missing=missing)


def _of_conversion(case: ExportContext) -> OperatorGaps:
    """By converting it: the registries of this torch were not looked at."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            convert_program(
                case.program, case.spec, case.opset, Path(folder), case.decompositions, case.custom
            )
    except Failure as failure:
        return _told(failure, case)
    return OperatorGaps(exporter="dynamo", opset=case.opset)


def _told(failure: Failure, case: ExportContext) -> OperatorGaps:
    """What a failed conversion says of operators, and else what it says."""
    text = f"{failure.__cause__ or ''}\n{failure.message}\n{failure.detail}"
    missing = find_missing_operators(text, case)
    return OperatorGaps(
        exporter=case.route.exporter,
        opset=case.opset,
        missing=missing,
        problem="" if missing else failure.message,
    )
