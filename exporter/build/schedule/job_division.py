"""How many workers a model's opsets are divided between.

In: what each job of a run will take, and the number of workers. Out: the parts of each job.

A job is divided where it would hold up the run while other workers have nothing to do. Each part
captures the model again, so that this costs time of a core; it is done only where the run becomes
clearly shorter, and only where an earlier run tells how long the stages of its model take.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence

from exporter.build.schedule.cost import Cost
from exporter.jobs.job import OpsetJob

#: No part gets fewer: below that nearly all of its time is the capture.
_LEAST_OPSETS = 3


def count_parts(
    jobs: Mapping[str, Sequence[OpsetJob]],
    costs: Mapping[str, Cost],
    workers: int,
    whole: Collection[str] = (),
) -> dict[str, int]:
    """The number of parts of each job, most often 1.

    Args:
        jobs: The opsets of each model.
        costs: What is known of them.
        workers: How many work at once.
        whole: The models that one worker has to make, whatever that takes.
    """
    undivided = dict.fromkeys(jobs, 1)
    known = {model: costs[model].seconds(jobs[model]) for model in jobs if model in costs}
    if not known:
        return undivided
    # What was never made may take any time: it counts like the longest.
    unknown = [max(known.values())] * (len(jobs) - len(known))
    wanted = _clearly_less(_length([*known.values(), *unknown], workers))
    if (sum(known.values()) + sum(unknown)) / workers > wanted:
        return undivided
    longest = sorted(known.keys() - whole, key=lambda model: (-known[model], model))[:workers]
    best = undivided
    for parts in _ways(longest, jobs, workers):
        pieces = [
            costs[model].seconds(piece)
            for model, count in parts.items()
            for piece in divide_opsets(jobs[model], count)
        ]
        others = [seconds for model, seconds in known.items() if model not in parts]
        if (length := _length([*pieces, *others, *unknown], workers)) < wanted:
            best, wanted = undivided | parts, _clearly_less(length)
    return best


def divide_opsets(opsets: Sequence[OpsetJob], parts: int) -> list[tuple[OpsetJob, ...]]:
    """The opsets in so many parts, by turns: neighbours cost about the same."""
    return [tuple(opsets[first::parts]) for first in range(parts)]


def _ways(
    longest: Sequence[str], jobs: Mapping[str, Sequence[OpsetJob]], workers: int
) -> Iterable[dict[str, int]]:
    """Each number of the longest jobs, all in the same number of parts."""
    most = {model: min(workers, len(jobs[model]) // _LEAST_OPSETS) for model in longest}
    for count in range(1, len(longest) + 1):
        for parts in range(2, max(most.values()) + 1):
            yield {model: max(1, min(parts, most[model])) for model in longest[:count]}


def _clearly_less(seconds: float) -> float:
    """What is a tenth shorter, and a second: workers have to start."""
    return min(seconds * 0.9, seconds - 1.0)


def _length(pieces: Iterable[float], workers: int) -> float:
    """How long so many workers take, the longest piece first."""
    free = [0.0] * workers
    for seconds in sorted(pieces, reverse=True):
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)
