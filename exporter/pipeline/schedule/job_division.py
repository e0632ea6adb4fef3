"""Divide the opsets of a model between several workers.

A job is divided if other workers would wait for it. Each part captures the model again, so a
division must clearly shorten the run. The stage times of an earlier run are necessary.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence

from exporter.jobs.job import OpsetJob
from exporter.pipeline.schedule.cost import Cost

#: The minimum of a part. In a smaller one, the capture would take nearly all of the time.
_MIN_OPSETS = 3


def count_parts(
    jobs: Mapping[str, Sequence[OpsetJob]],
    costs: Mapping[str, Cost],
    workers: int,
    undivisible: Collection[str] = (),
) -> dict[str, int]:
    """Return the number of parts of each job.

    Args:
        jobs: The opsets of each model.
        costs: The known costs.
        workers: The number of parallel workers.
        undivisible: Models that need a single worker.
    """
    undivided = dict.fromkeys(jobs, 1)
    known = {m: costs[m].estimate_seconds(jobs[m]) for m in jobs if m in costs}
    if not known:
        return undivided
    # An unknown job counts like the longest known one.
    unknown = [max(known.values())] * (len(jobs) - len(known))
    limit = _shorten(_estimate_length([*known.values(), *unknown], workers))
    if (sum(known.values()) + sum(unknown)) / workers > limit:
        return undivided
    longest = sorted(known.keys() - undivisible, key=lambda model: (-known[model], model))[:workers]
    best = undivided
    for parts in _list_divisions(longest, jobs, workers):
        pieces = [
            costs[model].estimate_seconds(piece)
            for model, count in parts.items()
            for piece in divide_opsets(jobs[model], count)
        ]
        others = [seconds for model, seconds in known.items() if model not in parts]
        if (length := _estimate_length([*pieces, *others, *unknown], workers)) < limit:
            best, limit = undivided | parts, _shorten(length)
    return best


def divide_opsets(opsets: Sequence[OpsetJob], parts: int) -> list[tuple[OpsetJob, ...]]:
    """Return the opsets of each part. They alternate, because neighbors have similar costs."""
    return [tuple(opsets[first::parts]) for first in range(parts)]


def _list_divisions(
    longest: Sequence[str], jobs: Mapping[str, Sequence[OpsetJob]], workers: int
) -> Iterable[dict[str, int]]:
    """Yield divisions of the 1, 2, ... longest jobs, each with the same number of parts."""
    maximum = {model: min(workers, len(jobs[model]) // _MIN_OPSETS) for model in longest}
    for count in range(1, len(longest) + 1):
        for parts in range(2, max(maximum.values()) + 1):
            yield {model: max(1, min(parts, maximum[model])) for model in longest[:count]}


def _shorten(seconds: float) -> float:
    """Return the length that justifies a division: 10 % and 1 s less, for the worker's start."""
    return min(seconds * 0.9, seconds - 1.0)


def _estimate_length(pieces: Iterable[float], workers: int) -> float:
    """Return the length of a run that starts the longest piece first."""
    free = [0.0] * workers
    for seconds in sorted(pieces, reverse=True):
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)
