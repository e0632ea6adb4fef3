"""The operators of captured programs and traced graphs, and the decomposition of programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from exporter.worker.torch_private.capture import defers_guards
from exporter.worker.torch_private.guards import is_enabled, replace_attribute


def find_untranslated_nodes(
    program: Any, opset: int, custom: Mapping[Any, Callable[..., Any]]
) -> list[torch.fx.Node]:
    """Return the nodes of a decomposed program that dynamo cannot translate.

    `program`: The captured program. An error of its decomposition is raised.
    """
    from torch.onnx._internal.exporter import _core, _dispatching, _registration

    registry = _registration.ONNXRegistry.from_torchlib(opset_version=opset)
    for target, translation in custom.items():
        registry.register_op(target, translation)
    decomposed = _core._prepare_exported_program_for_export(program, registry=registry)
    return [
        node
        for node in _iterate_nodes(decomposed)
        # Other calls, such as `getitem` or a branch, need no translation.
        if isinstance(node.target, torch._ops.OpOverload)
        and _dispatching.dispatch(node, registry)[0] is None
    ]


@contextmanager
def count_traced_operators() -> Iterator[Counter[str]]:
    """Count the operators of the traced or compiled graph of a TorchScript export.

    In-place operators keep their names. The count is empty if the group is off.
    """
    counts: Counter[str] = Counter()
    if not is_enabled("operators"):
        yield counts
        return
    from torch.onnx._internal.torchscript_exporter import utils

    optimize = utils._optimize_graph

    def count_and_optimize(graph: torch.Graph, *args: Any, **kwargs: Any) -> Any:
        inlined = graph.copy()
        torch._C._jit_pass_inline(inlined)
        kinds = (node.kind() for node in iterate_nodes(inlined))
        counts.clear()
        counts.update(kind for kind in kinds if not kind.startswith(("prim::", "onnx::")))
        return optimize(graph, *args, **kwargs)

    with replace_attribute(utils, "_optimize_graph", count_and_optimize):
        yield counts


def iterate_nodes(block: torch.Graph | torch.Block) -> Iterator[torch.Node]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from iterate_nodes(inner)


def list_conditions(program: Any) -> tuple[str, ...]:
    """Return the conditions of a captured program on its sizes, in the notation of Python.

    A condition whose branch returns an input, or with a float, is in the environment of the shapes
    only. A program that was read from a file has its assertions only.
    """
    import sympy
    from torch.utils._sympy.printers import PythonPrinter

    conditions: dict[Any, None] = {}
    environments = {}
    for node in _iterate_nodes(program):
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(size, torch.SymInt):
                environments[id(size.node.shape_env)] = size.node.shape_env
        if node.target is torch.ops.aten._assert_scalar.default:
            condition = getattr(node.args[0], "meta", {}).get("val")
            if isinstance(condition, torch.SymBool):
                conditions[condition.node.expr] = None
    for environment in environments.values():
        for group in getattr(environment, "deferred_runtime_asserts", {}).values():
            conditions |= dict.fromkeys(environment.replace(each.expr) for each in group)
        if not defers_guards():  # torch keeps a condition as a guard in place of an assertion
            conditions |= dict.fromkeys(
                environment.replace(each.expr) for each in environment.guards
            )
    parts = (part for each in conditions for part in sympy.And.make_args(each))
    texts = []
    for part in dict.fromkeys(parts):
        try:
            texts.append(PythonPrinter().doprint(part))
        except NotImplementedError:  # the reader reports the notation of sympy
            texts.append(f"sympy: {part}")
    return tuple(texts)


def _iterate_nodes(program: Any) -> Iterator[torch.fx.Node]:
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from module.graph.nodes


def count_captured_operators(program: Any) -> Counter[str]:
    """Count the operators of a captured program and its branches before decomposition."""
    targets = (node.target for node in _iterate_nodes(program))
    return Counter(str(target) for target in targets if isinstance(target, torch._ops.OpOverload))


class Decompositions:
    """The decomposed programs of one captured program, for opsets that decompose it equally.

    The translations of an opset decide which operators are decomposed. Two opsets decompose a
    program equally if they have the same translations. They also do if the decomposed program
    contains no operator that only one opset translates.
    """

    def __init__(self) -> None:
        self._programs: list[_DecomposedProgram] = []

    @contextmanager
    def reuse(self) -> Iterator[None]:
        """Let calls of `torch.onnx.export` reuse earlier decompositions."""
        if not is_enabled("decompositions"):
            yield
            return
        from torch.onnx._internal.exporter import _core, _decomp

        decompose = _core._prepare_exported_program_for_export

        def find_or_decompose(exported_program: Any, *, registry: Any) -> Any:
            translated = frozenset(_decomp.get_onnx_implemented_overloads(registry))
            for program in self._programs:
                if program.captured is exported_program and program.is_valid_for(translated):
                    return program.decomposed
            decomposed = decompose(exported_program, registry=registry)
            self._programs.append(_DecomposedProgram(exported_program, translated, decomposed))
            return decomposed

        name = "_prepare_exported_program_for_export"
        with replace_attribute(_core, name, find_or_decompose):
            yield


@dataclass(frozen=True, slots=True)
class _DecomposedProgram:
    captured: Any
    translated: frozenset[Any]
    """The operators that the opset has translations for."""
    decomposed: Any

    def is_valid_for(self, translated: frozenset[Any]) -> bool:
        """Return True if an opset with these translations gives the same program."""
        if self.translated == translated:
            return True
        # Fewer translations decompose more. Only operators of this program can be affected.
        modules = self.decomposed.graph_module.modules()
        targets = {node.target for module in modules for node in module.graph.nodes}
        return translated < self.translated and targets.isdisjoint(self.translated - translated)
