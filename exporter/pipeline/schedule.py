"""Create the jobs of a run, divide large ones, and order them by the times of an earlier run."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from exporter.cache.fingerprint import THOROUGH
from exporter.jobs import Job, OpsetJob
from exporter.manifest import Manifest
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.decisions import Decisions, FingerprintCache, find_link_states
from exporter.pipeline.engine import Task
from exporter.planning.plan import PlannedCell
from exporter.records.record import CellId, Record, Stage

#: Stages that the worker runs once for all opsets of a job. `reference` is PyTorch's run.
_SHARED_STAGES = frozenset({Stage.SOURCE, "reference", Stage.CAPTURE})
#: Stages that the worker runs once for each file.
_EXPORT_STAGES = frozenset({Stage.CONVERT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The time of one worker for a model, in seconds."""

    shared: float
    """The time that a worker needs once, for all opsets together."""
    export: float
    """The time to write one file."""
    checks: float
    """The time to check one file on all of its devices."""
    bytes: int
    """The size of the largest file with its external data."""

    def estimate_seconds(self, opsets: Sequence[OpsetJob]) -> float:
        exported = sum(not opset.reuse_from for opset in opsets)
        shared = self.shared if exported else 0.0
        return shared + exported * self.export + len(opsets) * self.checks


def estimate_costs(models: Mapping[str, Mapping[CellId, Record]]) -> dict[str, Cost]:
    """Return the cost of each model with at least one record that contains times."""
    timed = {
        model_id: [record for record in records.values() if record.seconds]
        for model_id, records in models.items()
    }
    return {model_id: _estimate_cost(records) for model_id, records in timed.items() if records}


def _estimate_cost(records: Sequence[Record]) -> Cost:
    opsets: dict[int, list[Record]] = {}
    for record in records:
        opsets.setdefault(record.cell.opset, []).append(record)
    export = [max(_sum_stages(each, _EXPORT_STAGES) for each in cells) for cells in opsets.values()]
    checks = [
        sum(
            sum(each.seconds.values()) - _sum_stages(each, _SHARED_STAGES | _EXPORT_STAGES)
            for each in cells
        )
        for cells in opsets.values()
    ]
    median = _median(export)
    # The first conversion includes the decomposition, which the others share.
    shared = max(_sum_stages(each, _SHARED_STAGES) for each in records) + max(export) - median
    return Cost(
        shared=shared,
        export=median,
        checks=_median(checks),
        bytes=max((record.artifact.bytes for record in records if record.artifact), default=0),
    )


def _median(seconds: Sequence[float]) -> float:
    return sorted(seconds)[len(seconds) // 2]


def _sum_stages(record: Record, stages: frozenset[str]) -> float:
    return sum(seconds for stage, seconds in record.seconds.items() if stage in stages)


#: The minimum of a part. In a smaller one, the capture would take nearly all of the time.
_MIN_OPSETS = 3


def count_parts(
    jobs: Mapping[str, Sequence[OpsetJob]],
    costs: Mapping[str, Cost],
    workers: int,
    undivisible: Collection[str] = (),
) -> dict[str, int]:
    """Return the number of parts of each job.

    A job is divided if other workers would wait for it. Each part captures the model again, so a
    division must clearly shorten the run. Models in `undivisible` need a single worker.
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
    longest = sorted(known.keys() - undivisible, key=lambda model_id: (-known[model_id], model_id))[
        :workers
    ]
    best = undivided
    for parts in _list_divisions(longest, jobs, workers):
        pieces = [
            costs[model_id].estimate_seconds(piece)
            for model_id, count in parts.items()
            for piece in divide_opsets(jobs[model_id], count)
        ]
        others = [seconds for model_id, seconds in known.items() if model_id not in parts]
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
    maximum = {model_id: min(workers, len(jobs[model_id]) // _MIN_OPSETS) for model_id in longest}
    for count in range(1, len(longest) + 1):
        for parts in range(2, max(maximum.values()) + 1):
            yield {model_id: max(1, min(parts, maximum[model_id])) for model_id in longest[:count]}


def _shorten(seconds: float) -> float:
    """Return the length that justifies a division: 10 % and 1 s less, for the worker's start."""
    return min(seconds * 0.9, seconds - 1.0)


def _estimate_length(pieces: Iterable[float], workers: int) -> float:
    """Return the length of a run that starts the longest piece first."""
    free = [0.0] * workers
    for seconds in sorted(pieces, reverse=True):
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


_CPU = "CPUExecutionProvider"
#: Bytes of weights up to which the machine's memory suffices for one copy in each worker.
_MAX_DIVISIBLE_SIZE = 512 * 1024**2


def make_jobs(
    manifest: Manifest,
    decisions: Decisions,
    build_folder: BuildFolder,
    fingerprints: FingerprintCache,
    find: Callable[[CellId], Record | None] = lambda _: None,
) -> list[Job]:
    """Return one job for each model with cells to run, in the order of the manifests.

    `find`: Return the valid record of a cell, of which a chain needs those of its links.
    """
    jobs = []
    for model, cells in groupby(decisions.to_run, key=lambda planned: planned.cell.model):
        spec = manifest.find_model(model)
        thorough = {THOROUGH: "yes"} if spec.thorough else {}
        job = Job(
            spec=spec,
            root=manifest.project.root,
            sandbox=manifest.project.sandbox,
            build=str(build_folder.path),
            folder=str(build_folder.create_folder(model).path),
            opsets=make_opset_jobs(manifest, cells, decisions.rechecks, find),
            links=tuple(manifest.find_model(link.id) for link in spec.chain),
            fingerprint=fingerprints.get_model_parts(model) | thorough,
            device_parts={name: fingerprints.get_device_parts(name) for name in spec.devices},
        )
        jobs.append(job)
    return jobs


def make_tasks(
    jobs: Iterable[Job],
    costs: Mapping[str, Cost],
    build_folder: BuildFolder,
    workers: int,
    read_sizes: Callable[[], Mapping[str, int]] = dict,
) -> list[Task]:
    """Divide long jobs and order all jobs by length, the longest first.

    Jobs of unknown length come first, those with the largest accepted files before the others.
    `read_sizes` returns the sizes of models, by which those without a cost are ordered.
    """
    jobs = list(jobs)
    opsets = {job.spec.id: job.opsets for job in jobs}
    undivisible = {job.spec.id for job in jobs if _needs_single_worker(job, costs)}
    counts = count_parts(opsets, costs, workers, undivisible)
    parts = []
    for job in jobs:
        for number, own_opsets in enumerate(divide_opsets(job.opsets, counts[job.spec.id])):
            # The first part keeps the folder of the job.
            folder = str(build_folder.create_folder(job.spec.id).path) if number else job.folder
            update = {"folder": folder, "opsets": own_opsets, "part": number}
            parts.append(job.model_copy(update=update))

    sizes = {} if set(opsets) <= set(costs) else read_sizes()

    def estimate(job: Job) -> tuple[float, int]:
        cost = costs.get(job.spec.id)
        seconds = cost.estimate_seconds(job.opsets) if cost else math.inf
        return seconds, sizes.get(job.spec.id, 0)

    parts.sort(key=estimate, reverse=True)
    return [Task(job=part, seconds=part.spec.timeout) for part in parts]


def make_opset_jobs(
    manifest: Manifest,
    cells: Iterable[PlannedCell],
    rechecks: Mapping[CellId, str],
    find: Callable[[CellId], Record | None],
) -> tuple[OpsetJob, ...]:
    """Group cells by the file that they share; see `make_jobs`."""
    jobs = []
    for (opset, route), group in groupby(cells, key=lambda p: (p.cell.opset, p.route)):
        ids = [planned.cell for planned in group]
        job = OpsetJob(
            opset=opset,
            route=route,
            devices=tuple(manifest.project.find_device(cell.device) for cell in ids),
            reuse_from=rechecks[ids[0]] if rechecks.keys() >= {*ids} else "",
            links=tuple(link for cell in ids for link in find_link_states(manifest, find, cell)),
        )
        jobs.append(job)
    return tuple(jobs)


def _needs_single_worker(job: Job, costs: Mapping[str, Cost]) -> bool:
    """Return True if parallel workers of the model could disturb each other.

    That is the case if it is large, uses a GPU, or is measured.
    """
    cost = costs.get(job.spec.id)
    return (
        (cost is not None and cost.bytes > _MAX_DIVISIBLE_SIZE)
        or bool(job.spec.measure)
        or job.spec.export_device != "cpu"
        or not all(
            set(device.providers) <= {_CPU} and device.device in ("", "CPU")
            for opset in job.opsets
            for device in opset.devices
        )
    )
