"""PyTorch's own values for the values of a file, by name.

Dynamo names values after the nodes of the decomposed program. TorchScript names nodes after the
modules that they come from. The output of a module corresponds to the single value that leaves its
scope.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch

from exporter.manifest import ModelSpec
from exporter.runtimes.session import Array
from exporter.worker.diagnose.runtime_values import FileGraph
from exporter.worker.inputs.arrays import to_numpy
from exporter.worker.inputs.call import Tensors, build_tensor_call
from exporter.worker.process.setup import apply_state
from exporter.worker.reference.python_state import ModelSnapshot

_NAME = "PyTorch"
#: The scope of a `PositionalModule` around a model.
_WRAPPED = "/_exporter_wrapped/"


class ProgramValues:
    """The values of a decomposed program; see `GraphValues`."""

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
        # No two values have the same module: each module has one exit, and the innermost counts.
        self._run({self._modules[name]: _make_recorder(arrays[name]) for name in names})
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


def _make_recorder(arrays: list[Array | None]) -> Callable[..., None]:
    def record(_module: torch.nn.Module, _args: Any, output: Any) -> None:
        arrays.append(to_numpy(output).copy() if isinstance(output, torch.Tensor) else None)

    return record


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
        for module in owners[producer] if producer is not None else ():
            exits[module].add(value)
    return {module: min(values) for module, values in exits.items() if len(values) == 1}
