"""Split off; to be described."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from exporter.worker.torch_private.versions import is_known_torch


def untranslated(
    program: Any, opset: int, custom: Mapping[Any, Callable[..., Any]]
) -> list[torch.fx.Node]:
    """Every node of a captured program, once decomposed, that dynamo has no translation for.

    Args:
        program: The captured program.
        opset: Whose translations count.
        custom: Translations of the manifest's own.

    Empty where this torch is not known, or where the program cannot be decomposed.
    """
    if not is_known_torch():
        return []
    try:
        return find_untranslated_nodes(program, opset, custom)
    except Exception:  # what fails is told by the export itself; this only adds to its message
        return []


def find_untranslated_nodes(
    program: Any, opset: int, custom: Mapping[Any, Callable[..., Any]]
) -> list[torch.fx.Node]:
    """The same of a known torch; raises whatever the decomposition raises."""
    from torch.onnx._internal.exporter import _core, _dispatching, _registration

    registry = _registration.ONNXRegistry.from_torchlib(opset_version=opset)
    for target, translation in custom.items():
        registry.register_op(target, translation)
    decomposed = _core._prepare_exported_program_for_export(program, registry=registry)
    return [
        node
        for module in decomposed.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
        # Operators of the dispatcher; what else is called (`getitem`, a branch) needs no function.
        if isinstance(node.target, torch._ops.OpOverload)
        and _dispatching.dispatch(node, registry)[0] is None
    ]


@contextmanager
def count_traced_operators() -> Iterator[Counter[str]]:
    """Counts the operators that TorchScript's exporter meets in the traced or compiled graph.

    As the model wrote them, in place or not. Nothing is counted where this torch is not known.
    """
    counts: Counter[str] = Counter()
    if not is_known_torch():
        yield counts
        return
    from torch.onnx._internal.torchscript_exporter import utils

    optimise = utils._optimize_graph

    def counting(graph: torch.Graph, *args: Any, **kwargs: Any) -> Any:
        whole = graph.copy()
        torch._C._jit_pass_inline(whole)
        kinds = (node.kind() for node in _all_nodes(whole))
        counts.clear()
        counts.update(kind for kind in kinds if not kind.startswith(("prim::", "onnx::")))
        return optimise(graph, *args, **kwargs)

    utils._optimize_graph = counting
    try:
        yield counts
    finally:
        utils._optimize_graph = optimise


def _all_nodes(block: torch.Graph | torch.Block) -> Iterator[torch.Node]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _all_nodes(inner)


def count_captured_operators(program: Any) -> Counter[str]:
    """Counts the operators of a captured program, branches included, before it is decomposed."""
    modules = program.graph_module.modules()
    graphs = [module.graph for module in modules if isinstance(module, torch.fx.GraphModule)]
    targets = (node.target for graph in graphs for node in graph.nodes)
    return Counter(str(target) for target in targets if isinstance(target, torch._ops.OpOverload))
