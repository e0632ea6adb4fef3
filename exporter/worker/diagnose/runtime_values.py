"""Values inside a file, computed by a runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from exporter.runtimes import LoadFailure, RunFailure, Session
from exporter.runtimes.values import Array, OnnxValue
from exporter.worker.diagnose.value_graph import FileGraph

#: The number of values that one run computes.
BATCH_SIZE = 6


class GraphValues(Protocol):
    """The values of one side of a comparison."""

    @property
    def name(self) -> str:
        """The name in the record."""

    def has_value(self, value: str) -> bool:
        """Return True if the side may have the value."""

    def compute(self, names: Sequence[str]) -> Mapping[str, OnnxValue | None]:
        """Return the values by name; None for a value that cannot be computed."""


class RuntimeValues:
    """The values that a runtime computes; see `GraphValues`."""

    def __init__(
        self,
        name: str,
        path: Path,
        inputs: Mapping[str, Array],
        load: Callable[[Path], Session],
    ) -> None:
        self.name = name
        self._graph = FileGraph(path)
        self._inputs = inputs
        self._load = load
        # In the folder of the file, because paths of external data are relative to it.
        self._scratch = path.with_name(f".{path.stem}.part.onnx")

    def has_value(self, value: str) -> bool:
        """Return True if a node computes the value."""
        return self._graph.find_producer(value) is not None

    def compute(self, names: Sequence[str]) -> Mapping[str, OnnxValue | None]:
        """Return the values; if the runtime rejects them together, compute each one alone."""
        try:
            return dict(zip(names, self._run(names), strict=True))
        except (LoadFailure, RunFailure):
            if len(names) == 1:
                return {names[0]: None}
        return {name: self.compute([name])[name] for name in names}

    def _run(self, names: Sequence[str]) -> Sequence[OnnxValue | None]:
        part = self._graph.extract_part(names)
        self._scratch.write_bytes(part.SerializeToString())
        try:
            outputs = self._load(self._scratch).run(self._inputs)
        finally:
            self._scratch.unlink(missing_ok=True)
        # A map is neither a tensor nor a sequence of tensors.
        return [value if _is_tensor_or_list(value) else None for value in outputs]


def _is_tensor_or_list(value: object) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(isinstance(item, np.ndarray) for item in items)


class KnownValues:
    """Known values, then those of another side; see `GraphValues`."""

    def __init__(self, known: Mapping[str, OnnxValue], others: GraphValues) -> None:
        self._known = known
        self._others = others

    @property
    def name(self) -> str:
        """The name of the other side."""
        return self._others.name

    def has_value(self, value: str) -> bool:
        """Return True if the value is known or the other side may have it."""
        return value in self._known or self._others.has_value(value)

    def compute(self, names: Sequence[str]) -> Mapping[str, OnnxValue | None]:
        """Return the values; see `GraphValues`."""
        unknown = [name for name in names if name not in self._known]
        others = self._others.compute(unknown) if unknown else {}
        return {name: self._known[name] if name in self._known else others[name] for name in names}


def measure_error(actual: OnnxValue | None, expected: OnnxValue) -> float:
    """Return the largest error as a share of the scale; infinite if the kinds differ."""
    if isinstance(actual, list) and isinstance(expected, list):
        if len(actual) != len(expected):
            return np.inf
        errors = (_measure_array(*pair) for pair in zip(actual, expected, strict=True))
        return max(errors, default=0.0)
    if isinstance(actual, list) or isinstance(expected, list):
        return np.inf
    return _measure_array(actual, expected)


def _measure_array(actual: Array | None, expected: Array) -> float:
    if actual is None or actual.shape != expected.shape:
        return np.inf
    if actual.dtype.kind in "biuOSU" or expected.dtype.kind in "biuOSU":
        # An index that differs by one is wrong, even if it is large.
        return 0.0 if np.array_equal(actual, expected) else np.inf
    with np.errstate(all="ignore"):
        kind = np.complex128 if "c" in (actual.dtype.kind, expected.dtype.kind) else np.float64
        one, other = actual.astype(kind), expected.astype(kind)
        finite = np.isfinite(other)
        if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
            return np.inf
        error = np.abs(one[finite] - other[finite])
        if not np.isfinite(error).all():
            return np.inf
        scale = np.abs(other[finite]).max(initial=0.0)
        largest = float(error.max(initial=0.0))
    return largest / float(scale) if scale else largest
