"""The first value that differs while nothing that it is computed from does.

In: a `FileGraph`, the side that is wrong and the one that is trusted. Out: a `Divergence`.

Bisection over the values that both sides have, in the order of the file, a few at a time. Where
branches make the order say little, the search goes on from a wrong input of what it found, so that
what it ends with has none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from exporter.records.record import Divergence
from exporter.worker.diagnose.runtime_values import BATCH_SIZE, GraphValues, measure_error
from exporter.worker.diagnose.value_graph import FileGraph


class DivergenceSearch:
    """One search for one wrong output."""

    def __init__(self, graph: FileGraph, found: GraphValues, trusted: GraphValues) -> None:
        self._graph = graph
        self._found = found
        self._trusted = trusted
        self._errors: dict[str, float | None] = {}
        self._threshold = 0.0

    def first_from(self, output: str) -> Divergence | None:
        """The first divergence on the way to `output`; None where `output` alone is right."""
        error = self._error_of([output])[output]
        if error is None or not error:
            return None
        # Halfway, on a logarithmic scale, between rounding and what came out.
        self._threshold = float(np.sqrt(1e-6 * min(error, 1.0)))
        wrong = output
        while True:
            wrong = self._earliest(wrong)
            before = self._nearest(wrong)
            errors = self._in_batches(before)
            worse = [name for name in before if self._is_wrong(errors[name])]
            if not worse:
                return self._divergence(wrong, before)
            wrong = worse[0]

    def _earliest(self, wrong: str) -> str:
        """Narrows the values before `wrong` down to where right turns into wrong."""
        candidates = self._comparable(wrong)
        low, high = 0, len(candidates) - 1
        while low < high:
            tried = sorted(
                {low + (high - low) * part // (BATCH_SIZE + 1) for part in range(1, BATCH_SIZE + 1)}
            )
            errors = self._error_of([candidates[index] for index in tried])
            wrong_ones = [index for index in tried if self._is_wrong(errors[candidates[index]])]
            high = min(wrong_ones, default=high)
            low = max((index + 1 for index in tried if index < high), default=low)
        return candidates[high]

    def _comparable(self, value: str) -> list[str]:
        """The values on the way to `value` that both sides have, and itself at the end."""
        nodes = sorted(self._graph.ancestors([value]))
        names = [name for index in nodes for name in self._graph.nodes[index].output if name]
        has_both = [
            name
            for name in names
            if name != value
            and self._trusted.knows(name)
            and self._errors.get(name, 0.0) is not None
        ]
        return [*has_both, value]

    def _nearest(self, value: str) -> list[str]:
        """The last comparable values that `value` is computed from, in the order of the file."""
        known = set(self._comparable(value)) - {value}
        found: set[str] = set()
        seen: set[str] = set()
        waiting = [value]
        while waiting:
            maker = self._graph.maker(waiting.pop())
            for name in self._graph.computed_inputs(maker) if maker is not None else ():
                if name in known:
                    found.add(name)
                elif name not in seen:
                    seen.add(name)
                    waiting.append(name)
        return [name for name in self._graph.values if name in found]

    def _in_batches(self, names: Sequence[str]) -> dict[str, float | None]:
        for start in range(0, len(names), BATCH_SIZE):
            self._error_of(names[start : start + BATCH_SIZE])
        return {name: self._errors[name] for name in names}

    def _error_of(self, names: Sequence[str]) -> dict[str, float | None]:
        """Errors by name; None for a value that the trusted side turns out not to have."""
        new = [name for name in names if name not in self._errors]
        if new:
            found, trusted = self._found.of(new), self._trusted.of(new)
            for name in new:
                wanted = trusted[name]
                self._errors[name] = None if wanted is None else measure_error(found[name], wanted)
        return {name: self._errors[name] for name in names}

    def _is_wrong(self, error: float | None) -> bool:
        return error is not None and error > self._threshold

    def _divergence(self, value: str, before: Sequence[str]) -> Divergence:
        maker = self._graph.maker(value)
        node = self._graph.nodes[maker] if maker is not None else None
        known = [error for error in (self._errors[name] for name in before) if error is not None]
        between = self._graph.ancestors([value]) - self._graph.ancestors(before)
        return Divergence(
            node=node.name if node else value,
            operator=node.op_type if node else "",
            output=value,
            against=self._trusted.name,
            error_before=max(known, default=0.0),
            error_after=self._errors[value] or 0.0,
            suspects=max(len(between), 1),
        )
