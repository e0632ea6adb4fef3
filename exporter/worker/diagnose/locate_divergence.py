"""The first node that differs, with the model's line: between two runtimes, or from PyTorch.

In: the file and the sample that shows the difference. Out: a `Divergence`, or nothing where the
difference vanishes as soon as somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from exporter.checks.files.sample_files import SampleData
from exporter.records.record import Divergence
from exporter.runtimes import Session
from exporter.worker.diagnose.first_divergence import DivergenceSearch
from exporter.worker.diagnose.pytorch_values import ModuleValues, ProgramValues
from exporter.worker.diagnose.reexport import ReExport, repeat_export
from exporter.worker.diagnose.runtime_values import (
    GraphValues,
    KnownValues,
    RuntimeValues,
    measure_error,
)
from exporter.worker.diagnose.value_graph import FileGraph
from exporter.worker.export.export_context import ExportContext
from exporter.worker.inputs.arrays import from_numpy
from exporter.worker.inputs.call import Tensors
from exporter.worker.process.failure import Failure

#: Above this share of the scale it is no rounding.
_WRONG = 1e-2

Open = Callable[[Path], Session]


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceLocator:
    """One sample on one file."""

    case: ExportContext
    path: Path
    data: SampleData
    lines: Mapping[str, str] = field(default_factory=dict)
    """The model's line by the name of a value, where that is known already."""

    def between_runtimes(self, found: Open, trusted: Open, name: str) -> Divergence | None:
        """Where the failing runtime leaves the one that is right."""
        inputs = self.data.inputs
        mine = RuntimeValues("the file", self.path, inputs, found)
        theirs = RuntimeValues(name, self.path, inputs, trusted)
        return self._first(mine, theirs, self._lines())

    def against_pytorch(self, found: Open, again: ReExport) -> Divergence | None:
        """Where the file leaves PyTorch's own values."""
        values = self._pytorch(again)
        if values is None:
            return None
        outputs = [output.name for output in self.case.spec.outputs]
        known = KnownValues(dict(zip(outputs, self.data.outputs, strict=True)), values)
        mine = RuntimeValues("the file", self.path, self.data.inputs, found)
        return self._first(mine, known, again.lines)

    def capture_is_right(self, again: ReExport) -> bool:
        """Whether the captured program gives what PyTorch gives; without one, nothing is wrong.

        Where it does not, its values say nothing of where the file goes wrong.
        """
        if again.program is None:
            return True
        names = [str(name) for name in again.program.graph_signature.user_outputs]
        found = ProgramValues(again.program, self.case.spec, self._tensors()).of(names)
        wanted = dict(zip(names, self.data.outputs, strict=False))
        return all(
            found[name] is None or measure_error(found[name], value) < _WRONG
            for name, value in wanted.items()
        )

    def _first(
        self, mine: GraphValues, theirs: GraphValues, lines: Mapping[str, str]
    ) -> Divergence | None:
        graph = FileGraph(self.path)
        wrong = self._worst(graph, mine, theirs)
        if wrong is None:
            return None
        divergence = DivergenceSearch(graph, mine, theirs).first_from(wrong)
        if divergence is None:
            return None
        return divergence.model_copy(update={"source": lines.get(divergence.output, "")})

    def _worst(self, graph: FileGraph, mine: GraphValues, theirs: GraphValues) -> str | None:
        """The output that is most wrong, of those that a node computes."""
        names = [name for name in graph.outputs if graph.maker(name) is not None]
        found, wanted = mine.of(names), theirs.of(names)
        errors = {
            name: measure_error(found[name], value) for name in names if (value := wanted[name]) is not None
        }
        worst = max(errors, key=lambda name: errors[name], default=None)
        return worst if worst is not None and errors[worst] > 0 else None

    def _pytorch(self, again: ReExport) -> GraphValues | None:
        tensors = self._tensors()
        if again.program is not None:
            return ProgramValues(again.program, self.case.spec, tensors)
        # What TorchScript compiled takes no hooks.
        is_script = isinstance(self.case.model, torch.jit.ScriptModule)
        if isinstance(self.case.model, torch.nn.Module) and not is_script:
            return ModuleValues(self.case.model, self.case.spec, tensors, FileGraph(self.path))
        return None

    def _tensors(self) -> Tensors:
        return {
            item.name: from_numpy(self.data.inputs[item.name], is_complex=item.is_complex)
            for item in self.case.spec.inputs
        }

    def _lines(self) -> Mapping[str, str]:
        if self.lines:
            return self.lines
        try:
            with repeat_export(self.case, self.path.parent) as again:
                return again.lines
        except Failure:
            return {}
