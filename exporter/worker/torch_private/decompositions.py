"""Split off; to be described."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from exporter.worker.torch_private.versions import is_known_torch


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
