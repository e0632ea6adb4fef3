"""The first value that a file computes wrong, found by a bisection of the values of two sides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from exporter.checks.model_file import list_external_files, read_model
from exporter.records.record import Divergence
from exporter.runtimes import Session
from exporter.runtimes.reference_file import open_plain_session
from exporter.runtimes.session import Array, OnnxValue
from exporter.worker.diagnosis.runtime_values import (
    BATCH_SIZE,
    FileGraph,
    GraphValues,
    RuntimeValues,
    measure_error,
)

#: Bytes of files whose nodes are compared one by one.
_MOST_BYTES = 1 << 30


def find_first_difference(
    files: tuple[Path, Path],
    inputs: Mapping[str, Array],
    reference_inputs: Mapping[str, Array],
    open_file: Callable[[Path], Session],
    folder: Path,
) -> Divergence | None:
    """Return the first value of a file that differs from that of its name in another file.

    `files`: The file, and the one with the right values.
    `folder`: A folder for copies; None is returned for files that are too large for them.
    """
    copies = [
        _copy_alone(path, folder / f".alone{number}.onnx") for number, path in enumerate(files)
    ]
    try:
        file, reference = copies
        if file is None or reference is None:
            return None
        values = RuntimeValues("the file", file, inputs, open_file)
        trusted = RuntimeValues("the reference", reference, reference_inputs, open_plain_session)
        return DivergenceSearch(FileGraph(file), values, trusted).find()
    finally:
        for copy in filter(None, copies):
            copy.unlink()


def _copy_alone(path: Path, target: Path) -> Path | None:
    """Return a copy with its external data inside, None if the file is too large for one."""
    external = [path.parent / name for name in list_external_files(read_model(path))]
    if path.stat().st_size + sum(each.stat().st_size for each in external) > _MOST_BYTES:
        return None
    onnx.save(onnx.load(str(path)), str(target))
    return target


class DivergenceSearch:
    """The search that starts at one wrong output.

    It bisects the values that both sides have, in the order of the file, a few at a time. In a
    graph with branches the order alone is not enough. The search then continues from a wrong input
    of its result, until the result has none.

    Args:
        graph: The file.
        actual: Its values.
        trusted: The values that are right.
        known: Other right values; they replace those of the trusted side.
    """

    def __init__(
        self,
        graph: FileGraph,
        actual: GraphValues,
        trusted: GraphValues,
        known: Mapping[str, OnnxValue] | None = None,
    ) -> None:
        self._graph = graph
        self._actual = actual
        self._trusted = trusted
        self._known = known or {}
        self._errors: dict[str, float | None] = {}
        self._threshold = 0.0

    def find(self) -> Divergence | None:
        """Return the first divergence before the most wrong output that a node computes."""
        names = [
            name for name in self._graph.outputs if self._graph.find_producer(name) is not None
        ]
        errors = self._measure_errors(names)
        worst = max(names, key=lambda name: errors[name] or 0.0, default=None)
        return self.find_first(worst) if worst else None

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
            and (name in self._known or self._trusted.has_value(name))
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
            if producer is not None:
                for name in self._graph.list_computed_inputs(producer):
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
            unknown = [name for name in new if name not in self._known]
            trusted = self._trusted.compute(unknown) if unknown else {}
            actual, trusted = self._actual.compute(new), {**trusted, **self._known}
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
            node=node.name or value if node else value,
            operator=node.op_type if node else "",
            output=value,
            against=self._trusted.name,
            error_before=max(errors, default=0.0),
            error_after=self._errors[value] or 0.0,
            suspects=max(len(suspects), 1),
        )
