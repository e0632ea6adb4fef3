"""Create the jobs of a run, most often one for each model with cells to run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby

from exporter.cache.fingerprint import THOROUGH
from exporter.jobs.job import Job, OpsetJob
from exporter.manifest import Manifest, Project
from exporter.pipeline.decisions.build_results import FingerprintCache
from exporter.pipeline.decisions.cell_decisions import Decisions
from exporter.pipeline.engine import Task
from exporter.pipeline.folder.build_folder import BuildFolder
from exporter.pipeline.schedule.cost import Cost
from exporter.pipeline.schedule.job_division import count_parts, divide_opsets
from exporter.planning.plan import PlannedCell
from exporter.records.record import CellId

_CPU = "CPUExecutionProvider"
#: Bytes of weights up to which the machine's memory suffices for one copy in each worker.
_MAX_DIVISIBLE_SIZE = 512 * 1024**2


def make_jobs(
    manifest: Manifest, decisions: Decisions, build: BuildFolder, fingerprints: FingerprintCache
) -> list[Job]:
    """Return one job for each model with cells to run, in the order of the manifests."""
    jobs = []
    for model, cells in groupby(decisions.to_run, key=lambda planned: planned.cell.model):
        spec = manifest.find_model(model)
        thorough = {THOROUGH: "yes"} if spec.thorough else {}
        job = Job(
            spec=spec,
            root=manifest.project.root,
            sandbox=manifest.project.sandbox,
            build=str(build.path),
            folder=str(build.create_folder(model).path),
            opsets=make_opset_jobs(manifest.project, cells, decisions.rechecks),
            fingerprint=fingerprints.get_model_parts(model) | thorough,
            device_parts={name: fingerprints.get_device_parts(name) for name in spec.devices},
        )
        jobs.append(job)
    return jobs


def make_tasks(
    jobs: Iterable[Job],
    costs: Mapping[str, Cost],
    build: BuildFolder,
    workers: int,
    read_sizes: Callable[[], Mapping[str, int]] = dict,
) -> list[Task]:
    """Divide long jobs and order all jobs by length, the longest first.

    Jobs of unknown length come first, those with the largest accepted files before the others.

    Args:
        jobs: One for each model.
        costs: The known costs of the models.
        build: Creates the folders of the parts.
        workers: The number of parallel workers.
        read_sizes: Returns the sizes of models, by which those without a cost are ordered.
    """
    jobs = list(jobs)
    opsets = {job.spec.id: job.opsets for job in jobs}
    undivisible = {job.spec.id for job in jobs if _needs_single_worker(job, costs)}
    counts = count_parts(opsets, costs, workers, undivisible)
    parts = []
    for job in jobs:
        for number, own_opsets in enumerate(divide_opsets(job.opsets, counts[job.spec.id])):
            # The first part keeps the folder of the job.
            folder = str(build.create_folder(job.spec.id).path) if number else job.folder
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
    project: Project, cells: Iterable[PlannedCell], rechecks: frozenset[CellId] = frozenset()
) -> tuple[OpsetJob, ...]:
    """Group cells by the file that they share."""
    jobs = []
    for (opset, route), group in groupby(cells, key=lambda p: (p.cell.opset, p.route)):
        ids = [planned.cell for planned in group]
        job = OpsetJob(
            opset=opset,
            route=route,
            devices=tuple(project.find_device(cell.device) for cell in ids),
            reuse_file=all(cell in rechecks for cell in ids),
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
