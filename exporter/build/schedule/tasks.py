"""The jobs of a run: one for each model with cells to make, most often.

In: a manifest and what was decided. Out: `Task`s, each with a fresh folder of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import groupby

from exporter.build.decisions.build_results import RecordValidator
from exporter.build.decisions.cell_decisions import Decisions
from exporter.build.engine import Task
from exporter.build.folder.build_folder import BuildFolder
from exporter.build.schedule.cost import Cost
from exporter.build.schedule.job_division import count_parts, divide_opsets
from exporter.cache.fingerprint import THOROUGH
from exporter.jobs.job import Job, OpsetJob
from exporter.manifest import Device, Manifest, Project
from exporter.planning.plan import PlannedCell

_CPU = "CPUExecutionProvider"
#: Bytes of weights: as many workers as there are count on models that are no larger.
_LARGEST = 512 * 1024**2


def make_jobs(
    manifest: Manifest, decisions: Decisions, build: BuildFolder, judge: RecordValidator
) -> list[Job]:
    """One job for each model with cells to run, in a fresh folder, in the manifests' order."""
    jobs = []
    for model, cells in groupby(decisions.to_run, key=lambda planned: planned.cell.model):
        spec = manifest.find_model(model)
        thorough = {THOROUGH: "yes"} if spec.thorough else {}
        job = Job(
            spec=spec,
            root=manifest.project.root,
            build=str(build.path),
            folder=str(build.create_folder(model).path),
            opsets=make_opset_jobs(manifest.project, cells, decisions.rechecks),
            fingerprint=judge.fingerprints.model(model) | thorough,
            device_digests={name: judge.fingerprints.device(name) for name in spec.devices},
        )
        jobs.append(job)
    return jobs


def make_tasks(
    jobs: Iterable[Job], costs: Mapping[str, Cost], build: BuildFolder, workers: int
) -> list[Task]:
    """The jobs as they are run: divided where one would hold up the others, the longest first.

    So no long job is left over for the end. What was never made comes before all others, in the
    manifests' order.

    Args:
        jobs: One for each model.
        costs: What is known of the models.
        build: Where the parts of a job get folders.
        workers: How many work at once.
    """
    jobs = list(jobs)
    opsets = {job.spec.id: job.opsets for job in jobs}
    whole = {job.spec.id for job in jobs if _is_for_one_worker(job, costs)}
    parts = count_parts(opsets, costs, workers, whole)
    pieces = [piece for job in jobs for piece in _divide(job, parts[job.spec.id], build)]
    return [
        Task(job=piece, seconds=piece.spec.timeout)
        for piece in sorted(pieces, key=lambda piece: -_seconds(piece, costs))
    ]


def make_opset_jobs(
    project: Project, cells: Iterable[PlannedCell], rechecked: frozenset[str] = frozenset()
) -> tuple[OpsetJob, ...]:
    """The cells by the file that they share."""
    jobs = []
    for (opset, route), group in groupby(cells, key=lambda p: (p.cell.opset, p.route)):
        ids = [planned.cell for planned in group]
        job = OpsetJob(
            opset=opset,
            route=route,
            devices=tuple(project.find_device(cell.device) for cell in ids),
            reuse_file=all(str(cell) in rechecked for cell in ids),
        )
        jobs.append(job)
    return tuple(jobs)


def _divide(job: Job, parts: int, build: BuildFolder) -> list[Job]:
    """The job in so many parts; the first keeps its folder."""
    if parts == 1:
        return [job]
    folders = [job.folder, *(str(build.create_folder(job.spec.id).path) for _ in range(1, parts))]
    return [
        job.model_copy(update={"folder": folder, "opsets": opsets, "part": number})
        for number, (folder, opsets) in enumerate(
            zip(folders, divide_opsets(job.opsets, parts), strict=True)
        )
    ]


def _is_for_one_worker(job: Job, costs: Mapping[str, Cost]) -> bool:
    """Whether two workers at the same model may get into each other's way.

    That is where it is large, shares the memory of a GPU, or has its time measured.
    """
    cost = costs.get(job.spec.id)
    devices = (device for opset in job.opsets for device in opset.devices)
    return (
        (cost is not None and cost.bytes > _LARGEST)
        or job.spec.latency
        or job.spec.export_device != "cpu"
        or not all(_is_cpu(device) for device in devices)
    )


def _is_cpu(device: Device) -> bool:
    return set(device.providers) <= {_CPU} and device.device in ("", "CPU")


def _seconds(job: Job, costs: Mapping[str, Cost]) -> float:
    cost = costs.get(job.spec.id)
    return cost.seconds(job.opsets) if cost else math.inf
