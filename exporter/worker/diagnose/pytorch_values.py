"""PyTorch's own values for the values of a file, by name.

In: a captured program or a module, and the inputs. Out: `GraphValues` that a search holds the file
against. Only what is asked for is kept: each question is another run of the model.

Dynamo names values after the nodes of the decomposed program. TorchScript names nodes after the
modules that they come from, so that a module's output has a twin where one value leaves its scope.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch

from exporter.checks.comparison.compare_arrays import Array
from exporter.manifest import ModelSpec
from exporter.worker.diagnose.value_graph import FileGraph
from exporter.worker.inputs.arrays import to_numpy
from exporter.worker.inputs.call import Tensors, build_tensor_call
from exporter.worker.reference.eager_run import BufferSnapshot

_NAME = "PyTorch"
#: The scope that `positional.Positional` puts around a model.
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

    def knows(self, value: str) -> bool:
        """Whether a node of the program has the name."""
        return value in self._nodes

    def of(self, names: Sequence[str]) -> Mapping[str, Array | None]:
        """One run of the program, in which these values are kept."""
        kept = _Keeping(self._module, frozenset(names))
        with torch.no_grad():
            try:
                kept.run(*self._inputs)
            except Exception:  # what was computed before it failed is still true
                return {name: kept.found.get(name) for name in names}
        return {name: kept.found.get(name) for name in names}


class _Keeping(torch.fx.Interpreter):
    """Keeps the tensors of some nodes."""

    def __init__(self, module: torch.fx.GraphModule, names: frozenset[str]) -> None:
        super().__init__(module, garbage_collect_values=True)
        self._names = names
        self.found: dict[str, Array] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if n.name in self._names and isinstance(value, torch.Tensor):
            # A copy: a later node may write into the same memory.
            self.found[n.name] = to_numpy(value).copy()
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
        scopes = [_scope(node.name) for node in graph.nodes]
        self._twins = {
            value: modules[scope] for scope, value in _exits(graph, scopes, set(modules)).items()
        }
        self._follow(
            {
                id(module)
                for name, module in modules.items()
                if not any(_is_inside(scope, name) for scope in scopes)
            }
        )

    def knows(self, value: str) -> bool:
        """Whether it is all that leaves the scope of a module."""
        return value in self._twins

    def of(self, names: Sequence[str]) -> Mapping[str, Array | None]:
        """One run of the model, in which the outputs of these modules are kept.

        A module that was called more than once has no one output.
        """
        found: dict[str, list[Array | None]] = {name: [] for name in names}
        # Two values never have one twin: each module has one exit, and the innermost counts.
        self._run({self._twins[name]: _keep(found[name]) for name in names})
        return {name: arrays[0] if len(arrays) == 1 else None for name, arrays in found.items()}

    def _follow(self, vanished: set[int]) -> None:
        """A module that left no node is part of the one before it, like BatchNorm of a Conv.

        The value of that one's scope is then what the vanished one puts out.
        """
        after: dict[int, torch.nn.Module] = {}
        made: dict[int, torch.nn.Module] = {}
        kept: list[Any] = []  # so that no identity is used twice

        def link(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if id(module) in vanished and args and id(args[0]) in made:
                after[id(made[id(args[0])])] = module
            made.setdefault(id(output), module)
            kept.append((args, output))

        if not vanished:
            return
        self._run(dict.fromkeys(self._model.modules(), link))
        for value, first in self._twins.items():
            last, seen = first, {id(first)}
            while id(last) in after and id(after[id(last)]) not in seen:
                last = after[id(last)]
                seen.add(id(last))
            self._twins[value] = last

    def _run(self, hooks: Mapping[torch.nn.Module, Callable[..., None]]) -> None:
        """One run of the model with forward hooks; its buffers are put back."""
        state = BufferSnapshot(self._model)
        handles = [module.register_forward_hook(hook) for module, hook in hooks.items()]
        call = build_tensor_call(self._spec, self._inputs)
        try:
            with torch.no_grad(), suppress(Exception):  # what came before a failure is still true
                self._model(*call.args, **call.kwargs)
        finally:
            for handle in handles:
                handle.remove()
            state.restore()


def _keep(found: list[Array | None]) -> Callable[..., None]:
    def hook(_module: torch.nn.Module, _args: Any, output: Any) -> None:
        found.append(to_numpy(output).copy() if isinstance(output, torch.Tensor) else None)

    return hook


def _scope(node: str) -> str:
    """The module of a node: `/layer1/layer1.0/conv1/Conv` is `layer1.0.conv1`'s."""
    path: list[str] = []
    for part in node.replace(_WRAPPED, "/", 1).split("/")[1:-1]:
        # What is indexed stands with the names it is indexed from: `layer1`, then `layer1.0`.
        if path and part.startswith(f"{path[-1]}."):
            path.pop()
        path.append(part)
    return ".".join(path)


def _is_inside(scope: str, module: str) -> bool:
    return scope == module or scope.startswith(f"{module}.")


def _exits(graph: FileGraph, scopes: Sequence[str], modules: set[str]) -> dict[str, str]:
    """For each module the one value that leaves its scope; none where several do."""
    leaving: dict[str, set[str]] = {module: set() for module in sorted(modules)}
    holders = [[module for module in modules if _is_inside(scope, module)] for scope in scopes]
    for index in range(len(graph.nodes)):
        for value in graph.computed_inputs(index):
            maker = graph.maker(value)
            if maker is not None:
                for module in set(holders[maker]) - set(holders[index]):
                    leaving[module].add(value)
    for value in graph.outputs:
        maker = graph.maker(value)
        for module in holders[maker] if maker is not None else ():
            leaving[module].add(value)
    return {module: min(values) for module, values in leaving.items() if len(values) == 1}
