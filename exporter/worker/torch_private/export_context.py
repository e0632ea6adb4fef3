"""The only place that touches torch's private modules, guarded by version.

In: nothing. Out: `capture_context`, the patches under which `torch.onnx.export` captures a model,
so that a capture of ours gives the graph of the public call; and `Decompositions`, which keeps
what the public call would compute anew for each opset.

`torch.onnx.export` captures and decomposes for every opset. Capturing once needs its patches:
recurrent layers over a dynamic sequence become a loop, a size of 0 or 1 is not told apart from
others, and `torch.onnx.is_in_onnx_export()` is true. A torch outside the guard captures without
them and decomposes each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from exporter.worker.aside import Aside, can_be_kept

#: The place of `keep_initializers_as_inputs` in the arguments of `_export_onnx` after the weights.
_LISTS_WEIGHTS = 5
#: The minor versions whose private modules were looked at.
_KNOWN = ((2, 13),)


def is_known_torch() -> bool:
    """Whether the private modules of the installed torch are the ones this module knows."""
    major, minor = torch.__version__.split(".")[:2]
    return (int(major), int(minor)) in _KNOWN


def known_versions() -> tuple[str, ...]:
    """The minor versions of torch that this module knows: `2.13`."""
    return tuple(f"{major}.{minor}" for major, minor in _KNOWN)


@contextmanager
def capture_context(*, dynamic: bool) -> Iterator[None]:
    """The patches of the public export around a capture; `dynamic`: some axis is dynamic."""
    with ExitStack() as patches:
        if is_known_torch():
            from torch.fx.experimental import _config

            # torch gives its configuration modules a `patch` that their types do not show.
            patched = _config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]
            patches.enter_context(patched)
            patches.enter_context(_in_onnx_export())
            if dynamic:
                from torch.export import _patches

                patches.enter_context(_patches.register_lstm_while_loop_decomposition())
                patches.enter_context(_patches.register_gru_while_loop_decomposition())
        yield


def defers_guards() -> bool:
    """Whether the public export turns a condition on sizes that it cannot prove into an assertion.

    ONNX has none, so that the condition is gone from the file; what it leaves is for the checks.
    """
    if not is_known_torch():
        return False
    from torch.onnx import _flags

    return bool(_flags.PREFER_DEFERRED_RUNTIME_ASSERTS_OVER_GUARDS)


@contextmanager
def _in_onnx_export() -> Iterator[None]:
    """What a model asks by `torch.onnx.is_in_onnx_export()` is true, as in the public call."""
    from torch.onnx._internal.exporter import _flags

    before = _flags._is_onnx_exporting
    _flags._is_onnx_exporting = True
    try:
        yield
    finally:
        _flags._is_onnx_exporting = before


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
        return untranslatable(program, opset, custom)
    except Exception:  # what fails is told by the export itself; this only adds to its message
        return []


def untranslatable(
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
def traced_operators() -> Iterator[Counter[str]]:
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


@contextmanager
def weights_aside() -> Iterator[Aside]:
    """Keeps the weights out of the protobuf that TorchScript's exporter makes, and hands them over.

    Nothing is kept out where this torch is not known, or where a weight is no plain tensor.
    """
    aside = Aside()
    if not is_known_torch():
        yield aside
        return
    graph_class: Any = torch.Graph
    export = graph_class._export_onnx

    def exporting(graph: torch.Graph, weights: dict[str, torch.Tensor], *rest: Any) -> Any:
        if not all(can_be_kept(weight) for weight in weights.values()):
            return export(graph, weights, *rest)
        aside.weights.update(weights)
        aside.are_inputs = bool(rest[_LISTS_WEIGHTS])
        return export(graph, {}, *rest)

    graph_class._export_onnx = exporting
    try:
        yield aside
    finally:
        graph_class._export_onnx = export


def _all_nodes(block: torch.Graph | torch.Block) -> Iterator[torch.Node]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _all_nodes(inner)


def captured_operators(program: Any) -> Counter[str]:
    """Counts the operators of a captured program, branches included, before it is decomposed."""
    modules = program.graph_module.modules()
    graphs = [module.graph for module in modules if isinstance(module, torch.fx.GraphModule)]
    targets = (node.target for graph in graphs for node in graph.nodes)
    return Counter(str(target) for target in targets if isinstance(target, torch._ops.OpOverload))


class Decompositions:
    """What one captured program was decomposed to, for the opsets that decompose it alike.

    Which operators are decomposed follows from those that an opset has translations for. Two
    opsets decompose a program alike if they have the same ones, or if none of those that only the
    one has is left in the program that was decomposed for it.
    """

    def __init__(self) -> None:
        self._known: list[_Decomposed] = []

    @contextmanager
    def reused(self) -> Iterator[None]:
        """Calls of `torch.onnx.export` inside find what earlier ones decomposed."""
        if not is_known_torch():
            yield
            return
        from torch.onnx._internal.exporter import _core, _decomp

        decompose = _core._prepare_exported_program_for_export

        def remembered(exported_program: Any, *, registry: Any) -> Any:
            translated = frozenset(_decomp.get_onnx_implemented_overloads(registry))
            for known in self._known:
                if known.captured is exported_program and known.serves(translated):
                    return known.decomposed
            decomposed = decompose(exported_program, registry=registry)
            self._known.append(_Decomposed(exported_program, translated, decomposed))
            return decomposed

        _core._prepare_exported_program_for_export = remembered
        try:
            yield
        finally:
            _core._prepare_exported_program_for_export = decompose


@dataclass(frozen=True, slots=True)
class _Decomposed:
    captured: Any
    translated: frozenset[Any]
    """The operators that the opset has translations for."""
    decomposed: Any

    def serves(self, translated: frozenset[Any]) -> bool:
        """Whether an opset with these translations gives the same program."""
        if self.translated == translated:
            return True
        # Fewer translations decompose more: only what is left here could have been decomposed.
        return translated < self.translated and self._targets().isdisjoint(
            self.translated - translated
        )

    def _targets(self) -> set[Any]:
        modules = self.decomposed.graph_module.modules()
        return {node.target for module in modules for node in module.graph.nodes}


def writes_into(tensor: torch.Tensor) -> int:
    """How often a tensor was written into; 0 where torch does not count."""
    return 0 if tensor.is_inference() else int(getattr(tensor, "_version", 0))
