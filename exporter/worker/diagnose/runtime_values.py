"""Values inside a file, computed by a runtime, a few at a time.

In: a `FileGraph`, the inputs, and how to load a model. Out: arrays by name. Never more than what
is asked for is kept, so that a large model needs little more memory than a run of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from exporter.checks.comparison.compare_arrays import Array
from exporter.runtimes import LoadFailure, RunFailure, Session
from exporter.runtimes.values import OnnxValue
from exporter.worker.diagnose.value_graph import FileGraph

#: Values computed at once.
BATCH_SIZE = 6


class GraphValues(Protocol):
    """One side of a comparison inside the graph."""

    @property
    def name(self) -> str:
        """As it stands in the record."""

    def knows(self, value: str) -> bool:
        """Whether it may have the value."""

    def of(self, names: Sequence[str]) -> Mapping[str, OnnxValue | None]:
        """The values; None for one that cannot be computed."""


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
        # Beside the file: weights are found by names relative to it.
        self._scratch = path.with_name(f".{path.stem}.part.onnx")

    def knows(self, value: str) -> bool:
        """A runtime has them all."""
        return self._graph.maker(value) is not None

    def of(self, names: Sequence[str]) -> Mapping[str, OnnxValue | None]:
        """See `GraphValues`; where some cannot be computed together, each is tried alone."""
        try:
            return dict(zip(names, self._run(names), strict=True))
        except (LoadFailure, RunFailure):
            if len(names) == 1:
                return {names[0]: None}
        return {name: self.of([name])[name] for name in names}

    def _run(self, names: Sequence[str]) -> Sequence[OnnxValue | None]:
        self._scratch.write_bytes(self._graph.part(names).SerializeToString())
        try:
            outputs = self._load(self._scratch).run(self._inputs)
        finally:
            self._scratch.unlink(missing_ok=True)
        # A map is neither a tensor nor a sequence, whatever the protocol hopes for.
        return [_value(value) for value in outputs]


def _value(value: object) -> OnnxValue | None:
    if isinstance(value, list):
        return value if all(isinstance(item, np.ndarray) for item in value) else None
    return value if isinstance(value, np.ndarray) else None


class KnownValues:
    """Values that are at hand, before those of another side; see `GraphValues`."""

    def __init__(self, known: Mapping[str, OnnxValue], others: GraphValues) -> None:
        self._known = known
        self._others = others

    @property
    def name(self) -> str:
        """The other side's."""
        return self._others.name

    def knows(self, value: str) -> bool:
        """Either has it."""
        return value in self._known or self._others.knows(value)

    def of(self, names: Sequence[str]) -> Mapping[str, OnnxValue | None]:
        """See `GraphValues`."""
        unknown = [name for name in names if name not in self._known]
        found = self._others.of(unknown) if unknown else {}
        return {name: self._known[name] if name in self._known else found[name] for name in names}


def measure_error(found: OnnxValue | None, wanted: OnnxValue) -> float:
    """The largest error as a share of the scale; infinite where the two are of another kind."""
    if isinstance(found, list) or isinstance(wanted, list):
        if not isinstance(found, list) or not isinstance(wanted, list) or len(found) != len(wanted):
            return np.inf
        return max(
            (_apart(one, other) for one, other in zip(found, wanted, strict=True)), default=0
        )
    return _apart(found, wanted)


def _apart(found: Array | None, wanted: Array) -> float:
    if found is None or found.shape != wanted.shape:
        return np.inf
    if found.dtype.kind in "biuOSU" or wanted.dtype.kind in "biuOSU":
        # An index that is off by one is wrong, however large it is.
        return 0.0 if np.array_equal(found, wanted) else np.inf
    with np.errstate(all="ignore"):
        kind = np.complex128 if "c" in (found.dtype.kind, wanted.dtype.kind) else np.float64
        one, other = found.astype(kind), wanted.astype(kind)
        finite = np.isfinite(other)
        if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
            return np.inf
        error = np.abs(one[finite] - other[finite])
        if not np.isfinite(error).all():
            return np.inf
        scale = np.abs(other[finite]).max(initial=0.0)
        largest = float(error.max(initial=0.0))
    return largest / float(scale) if scale else largest
