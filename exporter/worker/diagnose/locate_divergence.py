"""The first wrong node and its line in the model, by comparison with a runtime or PyTorch."""

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
from exporter.worker.export.attempts import ExportContext
from exporter.worker.inputs.arrays import from_numpy
from exporter.worker.inputs.call import Tensors
from exporter.worker.process.failure import Failure

#: Larger errors than this share of the scale are not rounding.
_WRONG = 1e-2

Open = Callable[[Path], Session]


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceLocator:
    """One sample and one file."""

    context: ExportContext
    path: Path
    data: SampleData
    lines: Mapping[str, str] = field(default_factory=dict)
    """The lines of the model by the names of values, if they are known."""

    def compare_runtimes(self, failing: Open, trusted: Open, name: str) -> Divergence | None:
        """Return the first value that the failing runtime computes wrong."""
        inputs = self.data.inputs
        actual = RuntimeValues("the file", self.path, inputs, failing)
        expected = RuntimeValues(name, self.path, inputs, trusted)
        lines = self.lines
        if not lines:
            try:
                with repeat_export(self.context, self.path.parent) as repeated:
                    lines = repeated.lines
            except Failure:
                lines = {}
        return self._find_first(actual, expected, lines)

    def compare_with_pytorch(self, load: Open, repeated: ReExport) -> Divergence | None:
        """Return the first value of the file that differs from PyTorch's value."""
        tensors = self._read_tensors()
        model, spec = self.context.model, self.context.spec
        values: GraphValues
        if repeated.program is not None:
            values = ProgramValues(repeated.program, spec, tensors)
        elif isinstance(model, torch.nn.Module) and not isinstance(model, torch.jit.ScriptModule):
            values = ModuleValues(model, spec, tensors, FileGraph(self.path))
        else:  # modules that TorchScript compiled have no hooks
            return None
        outputs = [output.name for output in spec.outputs]
        expected = KnownValues(dict(zip(outputs, self.data.outputs, strict=True)), values)
        actual = RuntimeValues("the file", self.path, self.data.inputs, load)
        return self._find_first(actual, expected, repeated.lines)

    def is_capture_right(self, repeated: ReExport) -> bool:
        """Return True if the captured program has PyTorch's outputs, or does not exist.

        The values of a wrong program do not show the first wrong node of the file.
        """
        if repeated.program is None:
            return True
        names = [str(name) for name in repeated.program.graph_signature.user_outputs]
        values = ProgramValues(repeated.program, self.context.spec, self._read_tensors())
        actual = values.compute(names)
        expected = dict(zip(names, self.data.outputs, strict=False))
        return all(
            actual[name] is None or measure_error(actual[name], value) < _WRONG
            for name, value in expected.items()
        )

    def _find_first(
        self, actual: GraphValues, trusted: GraphValues, lines: Mapping[str, str]
    ) -> Divergence | None:
        """Start the search at the most wrong output that a node computes."""
        graph = FileGraph(self.path)
        names = [name for name in graph.outputs if graph.find_producer(name) is not None]
        values, expected = actual.compute(names), trusted.compute(names)
        errors = {
            name: measure_error(values[name], value)
            for name in names
            if (value := expected[name]) is not None
        }
        worst = max(errors, key=lambda name: errors[name], default=None)
        if worst is None or errors[worst] <= 0:
            return None
        divergence = DivergenceSearch(graph, actual, trusted).find_first(worst)
        if divergence is None:
            return None
        return divergence.model_copy(update={"source": lines.get(divergence.output, "")})

    def _read_tensors(self) -> Tensors:
        return {
            item.name: from_numpy(self.data.inputs[item.name], is_complex=item.is_complex)
            for item in self.context.spec.inputs
        }
