"""Find the first value that a file computes wrong from right inputs.

For this, the model is exported again, and PyTorch computes the same values.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch

from exporter.checks.protocol import SampleData
from exporter.jobs import JobFolder
from exporter.manifest import ModelSpec
from exporter.manifest.rules.sources import COMMON_OPTIONS
from exporter.records.record import Divergence
from exporter.runtimes import Session
from exporter.runtimes.session import Array, OnnxValue
from exporter.worker.diagnosis.first_divergence import DivergenceSearch
from exporter.worker.diagnosis.runtime_values import (
    FileGraph,
    GraphValues,
    RuntimeValues,
    measure_error,
)
from exporter.worker.export.attempts import (
    Captures,
    ExportedFile,
    OpsetExport,
    export_module,
    export_program,
    list_routes,
)
from exporter.worker.export.convert import translate_program
from exporter.worker.export.weight_interface import move_weights_to_inputs
from exporter.worker.export.write_onnx import write_artifact
from exporter.worker.inputs.call import Tensors, build_tensor_call, from_numpy, to_numpy
from exporter.worker.model.model_kinds import is_compiled
from exporter.worker.process.failure import Failure
from exporter.worker.process.model_lines import find_node_line
from exporter.worker.process.setup import apply_state
from exporter.worker.reference.operator_calls import FunctionMode
from exporter.worker.reference.python_state import ModelSnapshot

UNOPTIMIZED = {"optimize": False}
#: The highest opset of TorchScript's exporter.
LAST_TORCHSCRIPT_OPSET = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReExport:
    """A second export."""

    path: Path
    program: Any | None = None
    """The decomposed program of dynamo."""
    lines: Mapping[str, str] = field(default_factory=dict)
    """The line of the model by the name of a value."""
    origin: ExportedFile | None = None
    """The route and the notes of another way to export."""


def is_optimized(opset_export: OpsetExport) -> bool:
    """Return True if dynamo's graph optimizer changed the file."""
    spec = opset_export.spec
    is_dynamo = opset_export.route.exporter == "dynamo" and opset_export.program is not None
    return is_dynamo and not spec.weights_are_inputs and spec.options.get("optimize", True) is True


@contextmanager
def repeat_export(
    opset_export: OpsetExport, folder: Path, *, optimize: bool = True
) -> Iterator[ReExport]:
    """Export again in the same way, or without dynamo's graph optimizer; the files are temporary.

    Raises:
        Failure: If this export fails.
    """
    with _create_scratch(folder) as scratch:
        program = None
        if opset_export.route.exporter == "dynamo":
            options = (
                opset_export.spec.options
                if optimize
                else {**opset_export.spec.options, **UNOPTIMIZED}
            )
            exported = translate_program(
                opset_export.program,
                opset_export.spec.model_copy(update={"options": options}),
                opset_export.opset,
                scratch,
                opset_export.decompositions,
                opset_export.custom,
            )
            graph, program = exported.model, exported.exported_program
        else:
            # With `verbose`, the file contains source lines. The graph is also printed to the log.
            options = {**opset_export.spec.options, "verbose": True}
            spec = opset_export.spec.model_copy(update={"options": options})
            current = replace(opset_export, spec=spec)
            state = ModelSnapshot(opset_export.model)
            path = scratch / "converted" / "model.onnx"
            graph = export_module(current, (opset_export.route,), path).graph
            state.restore()
        lines = {
            str(output.name): line
            for node in graph.graph
            if (line := find_node_line(node, opset_export.root))
            for output in node.outputs
        }
        yield ReExport(path=_write(graph, opset_export, scratch), program=program, lines=lines)


@contextmanager
def export_variant(
    opset_export: OpsetExport,
    folder: Path,
    exporter: str,
    capture: str,
    opset: int | None = None,
    call: Any = None,
) -> Iterator[ReExport]:
    """Export by any exporter and capture, at the same opset or at another one.

    `call`: A function that calls the functions of torch in place of the model.

    Raises:
        Failure: If this export fails.
    """
    spec, model = opset_export.spec, opset_export.model
    is_same = exporter == opset_export.route.exporter
    # Most options belong to one exporter only.
    options = {key: spec.options[key] for key in spec.options if is_same or key in COMMON_OPTIONS}
    is_usual = capture in ("export", "trace")
    spec = spec.model_copy(update={"options": options, "capture": None if is_usual else capture})
    route = opset_export.route.model_copy(update={"exporter": exporter, "capture": capture})
    job = opset_export.job.model_copy(update={"opset": opset or opset_export.opset, "route": route})
    state = ModelSnapshot(model)
    with _create_scratch(folder) as scratch:
        try:
            with FunctionMode(call) if call else nullcontext():
                if capture == "script" and not is_compiled(model):
                    model = torch.jit.script(model)
                current = replace(opset_export, spec=spec, job=job, model=model, program=None)
                routes = list_routes(spec, route, model)
                if exporter == "dynamo":
                    captures = Captures(model, spec, opset_export.inputs, opset_export.root)
                    exported = export_program(current, routes, captures, scratch)
                else:
                    exported = export_module(current, routes, scratch / "converted" / "model.onnx")
        finally:
            state.restore()
        yield ReExport(path=_write(exported.graph, current, scratch), origin=exported)


def _write(graph: ir.Model, opset_export: OpsetExport, scratch: Path) -> Path:
    if opset_export.spec.weights_are_inputs:
        move_weights_to_inputs(graph, opset_export.model.state_dict())
    return write_artifact(graph, opset_export.spec, opset_export.opset, JobFolder(scratch), {})


@contextmanager
def _create_scratch(folder: Path) -> Iterator[Path]:
    path = folder / ".again"
    shutil.rmtree(path, ignore_errors=True)  # a diagnosis that was killed left it
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


_NAME = "PyTorch"
#: The scope of a `PositionalModule` around a model.
_WRAPPED = "/_exporter_wrapped/"


class ProgramValues:
    """The values of a decomposed program; see `GraphValues`.

    Dynamo names values after the nodes of the decomposed program. TorchScript names nodes after the
    modules that they come from. The output of a module corresponds to the single value that leaves
    its scope.
    """

    name = _NAME

    def __init__(self, program: Any, spec: ModelSpec, inputs: Tensors) -> None:
        self._module = program.module(check_guards=False)
        self._nodes = {node.name for node in self._module.graph.nodes if node.op != "output"}
        call = build_tensor_call(spec, inputs)
        order = list(program.call_spec.in_spec.children()[1].context or ())
        self._inputs = (*call.args, *(call.kwargs[name] for name in order))

    def has_value(self, value: str) -> bool:
        """Return True if a node of the program has the name."""
        return value in self._nodes

    def compute(self, names: Sequence[str]) -> Mapping[str, Array | None]:
        """Run the program once and return these values."""
        interpreter = _RecordingInterpreter(self._module, frozenset(names))
        with torch.no_grad(), suppress(Exception):  # values before an error are still right
            interpreter.run(*self._inputs)
        return {name: interpreter.values.get(name) for name in names}


class _RecordingInterpreter(torch.fx.Interpreter):
    """An interpreter that stores the tensors of some nodes."""

    def __init__(self, module: torch.fx.GraphModule, names: frozenset[str]) -> None:
        super().__init__(module, garbage_collect_values=True)
        self._names = names
        self.values: dict[str, Array] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if n.name in self._names and isinstance(value, torch.Tensor):
            # A copy, because a later node may write into the same memory.
            self.values[n.name] = to_numpy(value).copy()
        return value


class ModuleValues:
    """The outputs of modules, for the values that leave their scopes; see `GraphValues`."""

    name = _NAME

    def __init__(
        self, model: torch.nn.Module, spec: ModelSpec, inputs: Tensors, graph: FileGraph
    ) -> None:
        self._model = model
        self._spec = spec
        self._inputs = inputs
        modules = {name: module for name, module in model.named_modules() if name}
        scopes = [_find_scope(node.name) for node in graph.nodes]
        exits = _find_exits(graph, scopes, set(modules))
        self._modules = {value: modules[scope] for scope, value in exits.items()}
        without_nodes = {
            id(module)
            for name, module in modules.items()
            if not any(_is_inside(scope, name) for scope in scopes)
        }
        if without_nodes:
            self._follow_merged_modules(without_nodes)

    def has_value(self, value: str) -> bool:
        """Return True if it is the only value that leaves the scope of a module."""
        return value in self._modules

    def compute(self, names: Sequence[str]) -> Mapping[str, Array | None]:
        """Run the model once and return the outputs of the modules of these values.

        The value is None if a module was called more than once.
        """
        arrays: dict[str, list[Array | None]] = {name: [] for name in names}

        def record(calls: list[Array | None], _module: object, _args: object, output: Any) -> None:
            calls.append(to_numpy(output).copy() if isinstance(output, torch.Tensor) else None)

        # No two values have the same module: each module has one exit, and the innermost counts.
        self._run({self._modules[name]: partial(record, arrays[name]) for name in names})
        return {name: calls[0] if len(calls) == 1 else None for name, calls in arrays.items()}

    def _follow_merged_modules(self, without_nodes: set[int]) -> None:
        """Replace a module by the one that the exporter merged into it.

        A module without a node, such as BatchNorm after Conv, is part of the module before it. The
        value that leaves the scope is then the output of the merged module.
        """
        successors: dict[int, torch.nn.Module] = {}
        producers: dict[int, torch.nn.Module] = {}
        references: list[Any] = []  # prevents the reuse of an id

        def link(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if id(module) in without_nodes and args and id(args[0]) in producers:
                successors[id(producers[id(args[0])])] = module
            producers.setdefault(id(output), module)
            references.append((args, output))

        self._run(dict.fromkeys(self._model.modules(), link))
        for value, first in self._modules.items():
            last, seen = first, {id(first)}
            while id(last) in successors and id(successors[id(last)]) not in seen:
                last = successors[id(last)]
                seen.add(id(last))
            self._modules[value] = last

    def _run(self, hooks: Mapping[torch.nn.Module, Callable[..., None]]) -> None:
        """Run the model with forward hooks and restore its buffers."""
        state = ModelSnapshot(self._model)
        handles = [module.register_forward_hook(hook) for module, hook in hooks.items()]
        call = build_tensor_call(self._spec, self._inputs)
        try:
            # Values before an error are still right.
            with apply_state(self._spec), suppress(Exception):
                self._model(*call.args, **call.kwargs)
        finally:
            for handle in handles:
                handle.remove()
            state.restore()


def _find_scope(node: str) -> str:
    """Return the module of a node: `layer1.0.conv1` for `/layer1/layer1.0/conv1/Conv`."""
    path: list[str] = []
    for part in node.replace(_WRAPPED, "/", 1).split("/")[1:-1]:
        # An indexed module repeats the name of its container: `layer1`, then `layer1.0`.
        if path and part.startswith(f"{path[-1]}."):
            path.pop()
        path.append(part)
    return ".".join(path)


def _is_inside(scope: str, module: str) -> bool:
    return scope == module or scope.startswith(f"{module}.")


def _find_exits(graph: FileGraph, scopes: Sequence[str], modules: set[str]) -> dict[str, str]:
    """Return the value that leaves the scope of each module, if there is exactly one."""
    exits: dict[str, set[str]] = {module: set() for module in sorted(modules)}
    owners = [[module for module in modules if _is_inside(scope, module)] for scope in scopes]
    for index in range(len(graph.nodes)):
        for value in graph.list_computed_inputs(index):
            producer = graph.find_producer(value)
            if producer is not None:
                for module in set(owners[producer]) - set(owners[index]):
                    exits[module].add(value)
    for value in graph.outputs:
        producer = graph.find_producer(value)
        if producer is not None:
            for module in owners[producer]:
                exits[module].add(value)
    return {module: min(values) for module, values in exits.items() if len(values) == 1}


#: Larger errors than this share of the scale are not rounding.
_WRONG = 1e-2

Open = Callable[[Path], Session]


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceLocator:
    """One sample and one file."""

    opset_export: OpsetExport
    path: Path
    data: SampleData

    def compare_runtimes(self, failing: Open, trusted: Open, name: str) -> Divergence | None:
        """Return the first value that the failing runtime computes wrong."""
        inputs = self.data.inputs
        actual = RuntimeValues("the file", self.path, inputs, failing)
        expected = RuntimeValues(name, self.path, inputs, trusted)
        lines: Mapping[str, str] = {}
        with suppress(Failure), repeat_export(self.opset_export, self.path.parent) as repeated:
            lines = repeated.lines
        return self._find_first(actual, expected, lines)

    def compare_with_pytorch(self, load: Open, repeated: ReExport) -> Divergence | None:
        """Return the first value of the file that differs from PyTorch's value."""
        tensors = self._read_tensors()
        model, spec = self.opset_export.model, self.opset_export.spec
        values: GraphValues
        if repeated.program is not None:
            values = ProgramValues(repeated.program, spec, tensors)
        elif is_compiled(model):
            return None
        else:
            values = ModuleValues(model, spec, tensors, FileGraph(self.path))
        outputs = [output.name for output in spec.outputs]
        known = dict(zip(outputs, self.data.outputs, strict=True))
        actual = RuntimeValues("the file", self.path, self.data.inputs, load)
        return self._find_first(actual, values, repeated.lines, known)

    def is_capture_right(self, repeated: ReExport) -> bool:
        """Return True if the captured program has PyTorch's outputs, or does not exist.

        The values of a wrong program do not show the first wrong node of the file.
        """
        if repeated.program is None:
            return True
        names = [str(name) for name in repeated.program.graph_signature.user_outputs]
        values = ProgramValues(repeated.program, self.opset_export.spec, self._read_tensors())
        actual = values.compute(names)
        expected = dict(zip(names, self.data.outputs, strict=False))
        return all(
            actual[name] is None or measure_error(actual[name], value) < _WRONG
            for name, value in expected.items()
        )

    def _find_first(
        self,
        actual: GraphValues,
        trusted: GraphValues,
        lines: Mapping[str, str],
        known: Mapping[str, OnnxValue] | None = None,
    ) -> Divergence | None:
        divergence = DivergenceSearch(FileGraph(self.path), actual, trusted, known).find()
        if divergence is None:
            return None
        return divergence.model_copy(update={"source": lines.get(divergence.output, "")})

    def _read_tensors(self) -> Tensors:
        return {
            item.name: from_numpy(self.data.inputs[item.name], is_complex=item.is_complex)
            for item in self.opset_export.spec.inputs
        }
