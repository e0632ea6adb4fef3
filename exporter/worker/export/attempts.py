"""The captures of a model, and the attempts of its export until one works.

The first attempt is in the inference state. If it fails, the plain state follows, then dynamo's
strict capture, as in `torch.onnx.export`. Only captures and states that the manifest leaves open
are tried. Each opset begins with the first attempt, so its file does not depend on other opsets.
"""

from __future__ import annotations

import inspect
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import onnx_ir as ir
import torch
from torch.export import Dim, ExportedProgram

from exporter.core.import_object import load_attribute
from exporter.core.text import join_names
from exporter.jobs import OpsetJob
from exporter.manifest import Input, ModelSpec
from exporter.manifest.rules.layers import FUNCTIONS
from exporter.records.record import Attempt, Route, Stage, Status
from exporter.worker.export.convert import convert_module, convert_program
from exporter.worker.inputs.call import Tensors, build_call, build_tensor_call
from exporter.worker.model.call_objects import NO_CUSTOM_OPS, CustomOps
from exporter.worker.model.exported_program import find_program
from exporter.worker.model.generation import convert_part
from exporter.worker.model.model_kinds import Model, describe_kind, is_compiled
from exporter.worker.process.failure import Failure, format_message, wrap_errors
from exporter.worker.process.model_lines import list_obstacles
from exporter.worker.process.setup import apply_state
from exporter.worker.reference.python_state import ModelSnapshot
from exporter.worker.torch_private.capture import (
    defers_guards,
    export_draft,
    patch_capture,
    read_draft_report,
)
from exporter.worker.torch_private.graph_operators import Decompositions


def capture_program(
    model: Model, spec: ModelSpec, inputs: Tensors, *, strict: bool, draft: bool = False
) -> Any:
    """Return the exported program before decomposition, with all dynamic axes of the contract.

    `strict`: Whether dynamo reads the bytecode of the model.
    `draft`: Whether conditions that nothing proves become those of the example.

    Raises:
        Failure: At stage `capture`, with the message of torch.
    """
    captured = find_program(model)
    if captured is not None:
        return captured
    if is_compiled(model):
        raise Failure(
            Stage.CAPTURE,
            f"{spec.source}: dynamo captures a torch.nn.Module, got a {describe_kind(model)}; "
            "set exporter = 'torchscript'",
        )
    call = build_tensor_call(spec, inputs)
    is_dynamic = any(
        is_symbolic_integer(item) or any(isinstance(dim, str) for dim in item.shape)
        for item in spec.inputs
    )
    export: Any = export_draft if draft else torch.export.export
    with wrap_errors(Stage.CAPTURE), patch_capture(dynamic=is_dynamic), apply_state(spec):
        program: ExportedProgram = export(
            model,
            call.args,
            kwargs=call.kwargs,
            dynamic_shapes=list_dynamic_shapes(model, spec) if is_dynamic else None,
            strict=strict,
            prefer_deferred_runtime_asserts_over_guards=defers_guards(),
        )
    return program


def list_dynamic_shapes(model: torch.nn.Module, spec: ModelSpec) -> dict[str, Any]:
    """Return the dynamic dimensions by the names of the parameters of `forward`."""
    hints = {item.name: _make_hints(item, spec) for item in spec.inputs}
    call = build_call(spec, hints, lambda _: None)
    bound = inspect.signature(model.forward).bind(*call.args, **call.kwargs)
    return dict(bound.arguments)


def is_symbolic_integer(item: Input) -> bool:
    """Return True if torch.export receives the input as a symbolic integer."""
    return item.scalar and item.dtype == "int64"


def _make_hints(item: Input, spec: ModelSpec) -> Any:
    """Return a hint for each dynamic dimension.

    If the model fixes the size, `DYNAMIC` fails and `AUTO` would accept it.
    """
    if is_symbolic_integer(item):
        return Dim.DYNAMIC
    hints: dict[int, Any] = {}
    for index, name in enumerate(item.shape):
        if not isinstance(name, str):
            continue
        axis = spec.find_axis(name)
        if axis.factors is not None:
            # Only a derived dimension guarantees that the division has no remainder.
            low, high = axis.factors
            number = [each.name for each in spec.axes].index(name)
            hints[index] = axis.multiple_of * Dim(f"_factor{number}", min=low, max=high)
        elif axis.rule or (axis.min <= 1 and axis.max is None):
            # A derived axis has no hint for its rule: torch finds the relation if needed.
            hints[index] = Dim.DYNAMIC
        else:
            hints[index] = Dim.DYNAMIC(min=axis.min if axis.min > 1 else None, max=axis.max)
    return hints


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsetExport:
    """One model at one opset."""

    model: Model
    inputs: Tensors
    """The declared inputs."""
    spec: ModelSpec
    job: OpsetJob
    root: Path
    """The project's root; source lines of the model are relative to it."""
    program: Any | None = None
    """The captured `torch.export.ExportedProgram`; None under TorchScript or without capture."""
    decompositions: Decompositions = field(default_factory=Decompositions)
    custom: CustomOps = NO_CUSTOM_OPS
    other_values: tuple[str, ...] = ()
    """The weights of `model` that have other values than in a new model."""

    @property
    def opset(self) -> int:
        return self.job.opset

    @property
    def route(self) -> Route:
        """The exporter and the kind of capture."""
        return self.job.route


_KEY = f"options.{FUNCTIONS}"


def resolve_function_types(opset_export: OpsetExport) -> ModelSpec:
    """Return the contract with a set of types in place of the references to them.

    Only the call of `torch.onnx.export` reads this contract, because no file can contain a type.

    Raises:
        Failure: At stage `convert`, if a reference is no type of a module of this model.
    """
    references = opset_export.spec.options.get(FUNCTIONS)
    if not isinstance(references, list):
        return opset_export.spec
    folder = (opset_export.root / opset_export.spec.manifest).parent
    available = {type(module) for module in opset_export.model.modules()}
    types: set[type] = set()
    for reference in references:
        with wrap_errors(Stage.CONVERT):
            kind = load_attribute(str(reference), folder)
        if not isinstance(kind, type):
            problem = f"{reference} is a {type(kind).__name__}, expected a class"
            raise Failure(Stage.CONVERT, f"{_KEY}: {problem}")
        if kind not in available:
            names = join_names(sorted(each.__name__ for each in available))
            message = f"{_KEY}: the model has no module of the type {reference}; it has {names}"
            raise Failure(Stage.CONVERT, message)
        types.add(kind)
    options = {**opset_export.spec.options, FUNCTIONS: types}
    return opset_export.spec.model_copy(update={"options": options})


_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class CapturedProgram:
    """A captured `torch.export.ExportedProgram` with its decompositions for all opsets."""

    program: Any
    decompositions: Decompositions
    notes: tuple[str, ...] = ()
    """The obstacles that a draft export passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A file, with its origin."""

    route: Route
    """The route that worked."""
    captured: CapturedProgram | None = None
    """None under TorchScript."""
    notes: tuple[str, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    """The failed attempts before this route."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedGraph(ExportedFile):
    """A converted graph."""

    graph: ir.Model


@dataclass(frozen=True, slots=True)
class Captures:
    """The captured programs of a model: each is captured when an opset needs it first."""

    model: Model
    spec: ModelSpec
    inputs: Tensors
    root: Path = Path()
    _captured: dict[tuple[str, str], CapturedProgram | Failure] = field(default_factory=dict)

    def capture(self, route: Route) -> CapturedProgram:
        """Return the program of a route.

        Raises:
            Failure: At stage `capture`, for every call with the route.
        """
        key = (route.capture, route.state)
        if key not in self._captured:
            state = ModelSnapshot(self.model)
            try:
                program = capture_program(
                    self.model,
                    apply_route(self.spec, route),
                    self.inputs,
                    strict=route.capture == "strict",
                    draft=route.capture == "draft",
                )
            except Failure as failure:
                self._captured[key] = failure
            else:
                notes: tuple[str, ...] = ()
                if route.capture == "draft":
                    report = read_draft_report(program)
                    obstacles = list_obstacles(report, self.root)
                    notes = tuple(f"draft export: {obstacle}" for obstacle in obstacles)
                self._captured[key] = CapturedProgram(program, Decompositions(), notes)
            finally:
                state.restore()
        captured = self._captured[key]
        if isinstance(captured, Failure):
            raise captured
        return captured


def list_routes(spec: ModelSpec, route: Route, model: Model) -> tuple[Route, ...]:
    """Return the routes to try, in their order; a captured program cannot be captured again."""
    routes = [
        route.model_copy(update={"state": state})
        for state in ("inference", "plain")
        if spec.export_state in (None, state)
    ]
    if route.exporter == "dynamo" and spec.capture is None and find_program(model) is None:
        routes.append(routes[0].model_copy(update={"capture": "strict"}))
    return tuple(routes)


def require_capture(captures: Captures, routes: Sequence[Route]) -> CapturedProgram:
    """Return the program of the first route that captures the model; see `_try_routes`."""
    return _try_routes(routes, captures.capture)[0]


def export_program(
    opset_export: OpsetExport, routes: Sequence[Route], captures: Captures, artifacts: Path
) -> ExportedGraph:
    """Capture and convert a model by the first route that works; see `_try_routes`.

    `artifacts`: The folder for reports that the options request.
    """

    def export(route: Route) -> ExportedGraph:
        captured = captures.capture(route)
        graph = convert_program(
            captured.program,
            apply_route(opset_export.spec, route),
            opset_export.opset,
            artifacts,
            captured.decompositions,
            opset_export.custom,
        )
        if route.capture != routes[0].capture:
            _require_inputs(graph, opset_export.spec)
        return ExportedGraph(graph=graph, route=route, captured=captured, notes=captured.notes)

    may_skip_optimizer = "optimize" not in opset_export.spec.options
    exported, attempts = _try_routes(routes, export, may_skip_optimizer=may_skip_optimizer)
    return _add_attempts(exported, attempts)


def export_module(
    opset_export: OpsetExport, routes: Sequence[Route], scratch: Path
) -> ExportedGraph:
    """Trace or script a model by the first route that works, or export a part of a generator.

    The graph refers to the buffers of the model, so the caller restores them after it wrote the
    file. The temporary file `scratch` may have external data in its folder; see `_try_routes`.
    """
    if opset_export.spec.generate is not None:
        convert = convert_part
        graph = convert(
            opset_export.model, opset_export.spec, opset_export.inputs, opset_export.opset
        )
        return ExportedGraph(graph=graph, route=opset_export.route)
    spec = resolve_function_types(opset_export)

    def export(route: Route) -> ExportedGraph:
        state = ModelSnapshot(opset_export.model)
        try:
            graph, notes = convert_module(
                opset_export.model,
                apply_route(spec, route),
                opset_export.inputs,
                opset_export.opset,
                scratch,
                opset_export.custom,
            )
        except Failure:
            state.restore()
            raise
        return ExportedGraph(graph=graph, route=route, notes=notes)

    return _add_attempts(*_try_routes(routes, export))


def follow_route(opset_export: OpsetExport, exported: ExportedFile) -> OpsetExport:
    """Return the export that worked, so that it can be repeated."""
    captured = exported.captured
    return replace(
        opset_export,
        spec=apply_route(opset_export.spec, exported.route),
        job=opset_export.job.model_copy(update={"route": exported.route}),
        program=captured.program if captured else None,
        decompositions=captured.decompositions if captured else opset_export.decompositions,
    )


def apply_route(spec: ModelSpec, route: Route) -> ModelSpec:
    """Return the contract with the state and the options of the route."""
    options = spec.options if route.optimize else {**spec.options, "optimize": False}
    return spec.model_copy(update={"export_state": route.state, "options": options})


def _try_routes(
    routes: Sequence[Route],
    export: Callable[[Route], _Result],
    *,
    may_skip_optimizer: bool = False,
) -> tuple[_Result, tuple[Attempt, ...]]:
    """Return the result of the first route that works, and the failed attempts before it.

    `may_skip_optimizer`: Whether a failed graph optimizer is left out in one more attempt.

    Raises:
        Failure: The first failure with all attempts, if no route works.
    """
    failures: list[Failure] = []
    attempts: list[Attempt] = []
    queue = deque(routes)
    optimizer = torch.onnx.ONNXProgram.optimize.__code__
    while queue:
        route = queue.popleft()
        try:
            return export(route), tuple(attempts)
        except Failure as failure:
            failures.append(failure)
            attempts.append(
                Attempt(
                    capture=route.capture,
                    state=route.state,
                    optimize=route.optimize,
                    stage=failure.stage,
                    message=failure.message,
                )
            )
            if failure.__cause__ is None or failure.status is not Status.ERROR:
                break  # a rule of the contract, or exhausted memory: other attempts fail as well
            frames = traceback.walk_tb(failure.__cause__.__traceback__)
            is_optimizer = any(frame.f_code is optimizer for frame, _ in frames)
            if may_skip_optimizer and route.optimize and is_optimizer:
                queue.appendleft(route.model_copy(update={"optimize": False}))
    first = failures[0]
    if len(attempts) > 1:
        first.attempts = tuple(attempts)
        seen, *more = attempts
        others = (
            f"- {_name_route(each)}: "
            + (each.message if each.message != seen.message else "the same error")
            for each in more
        )
        first.detail = "\n".join((first.detail, "Further attempts:", *others))
    raise first


def _add_attempts(exported: ExportedGraph, attempts: tuple[Attempt, ...]) -> ExportedGraph:
    route, notes = exported.route, list(exported.notes)
    for attempt in attempts:
        is_same = (attempt.capture, attempt.state) == (route.capture, route.state)
        note = (
            f"{_name_route(attempt)} fails at {attempt.stage} ({attempt.message}); "
            f"the file is from {_name_route(route)}"
        )
        if is_same and attempt.optimize and not route.optimize:
            note = f"dynamo's graph optimizer fails ({attempt.message}); the file is not optimized"
        notes.append(format_message(note))
    return replace(exported, attempts=attempts, notes=tuple(notes))


def _require_inputs(graph: ir.Model, spec: ModelSpec) -> None:
    """Fail if another capture replaced an input by its value, which the first one refused."""
    names = {value.name for value in graph.graph.inputs}
    ignored = [item.name for item in spec.inputs if item.name not in names]
    if ignored:
        with wrap_errors(Stage.CAPTURE):
            raise ValueError(f"the capture ignores the inputs {', '.join(ignored)}")


def _name_route(route: Attempt | Route) -> str:
    optimizer = "" if route.optimize else " without the graph optimizer"
    return f"capture '{route.capture}' in the {route.state} state{optimizer}"
