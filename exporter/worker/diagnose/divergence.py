"""The first wrong value with right inputs, and its node and line in the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from exporter.checks.files.sample_files import SampleData
from exporter.records.record import Divergence
from exporter.runtimes import Session
from exporter.worker.diagnose.pytorch_values import ModuleValues, ProgramValues
from exporter.worker.diagnose.reexport import ReExport, repeat_export
from exporter.worker.diagnose.runtime_values import (
    BATCH_SIZE,
    FileGraph,
    GraphValues,
    KnownValues,
    RuntimeValues,
    measure_error,
)
from exporter.worker.export.attempts import ExportContext
from exporter.worker.inputs.arrays import from_numpy
from exporter.worker.inputs.call import Tensors
from exporter.worker.process.failure import Failure


class DivergenceSearch:
    """The search that starts at one wrong output.

    It bisects the values that both sides have, in the order of the file, a few at a time. In a
    graph with branches the order alone is not enough. The search then continues from a wrong input
    of its result, until the result has none.
    """

    def __init__(self, graph: FileGraph, actual: GraphValues, trusted: GraphValues) -> None:
        self._graph = graph
        self._actual = actual
        self._trusted = trusted
        self._errors: dict[str, float | None] = {}
        self._threshold = 0.0

    def find_first(self, output: str) -> Divergence | None:
        """Return the first divergence before `output`, or None if `output` is right."""
        error = self._measure_errors([output])[output]
        if not error:
            return None
        # The middle between rounding and this error, on a logarithmic scale.
        self._threshold = float(np.sqrt(1e-6 * min(error, 1.0)))
        wrong = output
        while True:
            wrong = self._bisect(wrong)
            inputs = self._find_nearest(wrong)
            for start in range(0, len(inputs), BATCH_SIZE):
                self._measure_errors(inputs[start : start + BATCH_SIZE])
            wrong_inputs = [name for name in inputs if self._is_wrong(self._errors[name])]
            if not wrong_inputs:
                return self._make_divergence(wrong, inputs)
            wrong = wrong_inputs[0]

    def _bisect(self, wrong: str) -> str:
        """Return the first wrong value before `wrong` in the order of the file."""
        candidates = self._list_comparable(wrong)
        low, high = 0, len(candidates) - 1
        while low < high:
            parts = range(1, BATCH_SIZE + 1)
            indices = sorted({low + (high - low) * part // (BATCH_SIZE + 1) for part in parts})
            errors = self._measure_errors([candidates[index] for index in indices])
            wrong_indices = [i for i in indices if self._is_wrong(errors[candidates[i]])]
            high = min(wrong_indices, default=high)
            low = max((index + 1 for index in indices if index < high), default=low)
        return candidates[high]

    def _list_comparable(self, value: str) -> list[str]:
        """Return the values before `value` that both sides have, and `value` at the end."""
        nodes = sorted(self._graph.find_ancestors([value]))
        names = [name for index in nodes for name in self._graph.nodes[index].output if name]
        comparable = [
            name
            for name in names
            if name != value
            and self._trusted.has_value(name)
            and self._errors.get(name, 0.0) is not None
        ]
        return [*comparable, value]

    def _find_nearest(self, value: str) -> list[str]:
        """Return the last comparable values before `value`, in the order of the file."""
        comparable = set(self._list_comparable(value)) - {value}
        nearest: set[str] = set()
        seen: set[str] = set()
        queue = [value]
        while queue:
            producer = self._graph.find_producer(queue.pop())
            for name in self._graph.list_computed_inputs(producer) if producer is not None else ():
                if name in comparable:
                    nearest.add(name)
                elif name not in seen:
                    seen.add(name)
                    queue.append(name)
        return [name for name in self._graph.values if name in nearest]

    def _measure_errors(self, names: Sequence[str]) -> dict[str, float | None]:
        """Return errors by name; None for a value that the trusted side does not have."""
        new = [name for name in names if name not in self._errors]
        if new:
            actual, trusted = self._actual.compute(new), self._trusted.compute(new)
            for name in new:
                expected = trusted[name]
                error = None if expected is None else measure_error(actual[name], expected)
                self._errors[name] = error
        return {name: self._errors[name] for name in names}

    def _is_wrong(self, error: float | None) -> bool:
        return error is not None and error > self._threshold

    def _make_divergence(self, value: str, inputs: Sequence[str]) -> Divergence:
        producer = self._graph.find_producer(value)
        node = self._graph.nodes[producer] if producer is not None else None
        errors = [error for error in (self._errors[name] for name in inputs) if error is not None]
        suspects = self._graph.find_ancestors([value]) - self._graph.find_ancestors(inputs)
        return Divergence(
            node=node.name if node else value,
            operator=node.op_type if node else "",
            output=value,
            against=self._trusted.name,
            error_before=max(errors, default=0.0),
            error_after=self._errors[value] or 0.0,
            suspects=max(len(suspects), 1),
        )


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
