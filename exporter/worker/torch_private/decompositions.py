"""Reuse of the decomposition of a captured program for several opsets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from exporter.worker.torch_private.guards import is_enabled, replace_attribute


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
