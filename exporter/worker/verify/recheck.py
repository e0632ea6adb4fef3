"""The checks once more, on a file that is there, where only they have changed.

In: a job's opset whose file an earlier run made, and that run's folder. Out: new records for its
cells, or None where the file has to be made again: something is not whole, or a check says no, and
whoever has to find out why needs the model.

Nothing of the model is loaded, so that another tolerance costs seconds.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from exporter.cache.fingerprint import THOROUGH
from exporter.checks.files.artifact_facts import measure_artifact
from exporter.checks.files.model_file import UnreadableModel
from exporter.checks.files.sample_files import SampleCache, hash_sample
from exporter.checks.protocol import CheckContext
from exporter.jobs.job import Job, OpsetJob
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference
from exporter.manifest import ModelSpec
from exporter.records.record import Record, Status
from exporter.worker.verify.run_checks import (
    SharedFields,
    StageTimes,
    check_on_device,
    run_structure_checks,
)


def recheck(job: Job, opset: OpsetJob, memory: SampleCache) -> list[Record] | None:
    """Brings the files into the job's folder and holds the checks of today against them."""
    fresh, old = JobFolder(Path(job.folder)), JobFolder(Path(job.build) / job.spec.id)
    stored = old.read_records()
    cells = job.list_opset_cells(opset)
    earlier = [stored[str(cell)] for cell in cells if str(cell) in stored]
    reference = _reference(old)
    if len(earlier) < len(cells) or reference is None or _needs_model(job.spec, reference):
        return None
    # Samples that were tried thoroughly may since have made way for the usual ones.
    is_thorough = job.spec.thorough or any(record.thorough for record in earlier)
    if is_thorough and not reference.thorough:
        return None
    try:
        _bring(opset, earlier[0], old, fresh)
        _bring_samples(reference, old, fresh)
        facts = measure_artifact(fresh.model(opset.opset), job.spec.id)
    except (OSError, UnreadableModel, ValueError):
        return None
    if any(record.artifact != facts for record in earlier):
        return None
    shutil.copyfile(old.reference, fresh.reference)
    subject = CheckContext(
        folder=fresh,
        opset=opset.opset,
        spec=job.spec.resolve_cell(opset.opset),
        reference=reference,
        notes=earlier[0].notes,
        samples=memory,
    )
    return _prove(job, opset, subject, earlier)


def _needs_model(spec: ModelSpec, reference: Reference) -> bool:
    """Whether what the checks need is known to the model's code alone, or is not kept with a hash.

    That is kernels, a call that user code makes, weights that are inputs of the file, and the time
    that PyTorch takes.
    """
    return bool(spec.custom_ops or spec.inputs_from or reference.weight_inputs or spec.latency)


def _prove(
    job: Job, opset: OpsetJob, subject: CheckContext, earlier: list[Record]
) -> list[Record] | None:
    structure = run_structure_checks(subject)
    records = []
    for device, record in zip(opset.devices, earlier, strict=True):
        common = SharedFields(route=opset.route, log=record.log, notes=record.notes)
        here = replace(subject, spec=job.spec.resolve_cell(opset.opset, device.name))
        found = check_on_device(device, here, structure, common, StageTimes())
        if found.status is not Status.PASS:
            return None
        records.append(_renewed(record, found, job.make_fingerprint(record.cell)))
    return records


def _renewed(earlier: Record, found: Record, fingerprint: dict[str, str]) -> Record:
    """What was known of the file, with what the checks say of it today."""
    thorough = earlier.thorough or found.thorough
    return earlier.model_copy(
        update={
            "status": found.status,
            "stage": None,
            "check": None,
            "message": "",
            "detail": "",
            "blame": None,
            "checks": found.checks,
            "seconds": {**earlier.seconds, **found.seconds},
            "thorough": thorough,
            "fingerprint": fingerprint | ({THOROUGH: "yes"} if thorough else {}),
        }
    )


def _reference(folder: JobFolder) -> Reference | None:
    try:
        return Reference.read(folder.reference.read_bytes())
    except (OSError, ValueError):
        return None


def _bring(opset: OpsetJob, record: Record, old: JobFolder, fresh: JobFolder) -> None:
    """Copies: onnx refuses weights that have a second name.

    Raises:
        OSError: where one of the files cannot be read.
        ValueError: where a name leads out of the folder, or there is no file.
    """
    if record.artifact is None:
        raise ValueError(f"{record.cell} has no file")
    for name in (f"{opset.opset}.onnx", *record.artifact.external_data):
        source, target = old.path / name, fresh.path / name
        if source.parent != old.path or source.is_symlink():
            raise ValueError(f"{name} is not inside the model's folder")
        if not target.exists():
            shutil.copyfile(source, target)
    log = old.log(opset.opset)
    if log.is_file() and not log.is_symlink():
        shutil.copyfile(log, fresh.log(opset.opset))


def _bring_samples(reference: Reference, old: JobFolder, fresh: JobFolder) -> None:
    """Copies PyTorch's inputs and outputs.

    Raises:
        OSError: where one cannot be read.
        ValueError: where they are not what PyTorch put out.
    """
    for sample in reference.samples:
        target = fresh.sample(sample.index)
        if not target.exists():
            shutil.copytree(old.sample(sample.index), target)
        if hash_sample(target) != sample.sha256:
            raise ValueError(f"{target.name} is not what PyTorch put out")
