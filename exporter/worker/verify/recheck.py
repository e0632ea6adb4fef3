"""The recheck: run changed checks on an existing file.

No code of the model is loaded, so a changed tolerance costs seconds only.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from exporter.cache.fingerprint import THOROUGH
from exporter.checks.model_file import UnreadableModel, measure_artifact
from exporter.checks.protocol import CheckContext
from exporter.checks.sample_files import SampleCache, hash_sample
from exporter.core.files import PROJECT_LIMIT, read_regular_file
from exporter.jobs import Job, JobFolder, OpsetJob, Reference, list_groups
from exporter.manifest.resolved.model import has_steps
from exporter.records.record import Record, Status
from exporter.worker.verify.run_checks import (
    FileProver,
    SharedFields,
)


def recheck(job: Job, opset: OpsetJob, cache: SampleCache) -> list[Record] | None:
    """Copy the files into the job's folder and run the current checks on them."""
    target, source = JobFolder(Path(job.folder)), JobFolder(Path(job.build) / job.spec.id)
    stored = source.read_records()
    cells = job.list_opset_cells(opset)
    records = [stored[cell] for cell in cells if cell in stored]
    try:
        reference = Reference.read(read_regular_file(source.reference, PROJECT_LIMIT))
    except (OSError, ValueError):
        return None
    spec = job.spec
    # Kernels, call objects, weight inputs and PyTorch's time are only available with the model.
    # Only an export records the files that a comparator of the project reads.
    functions = [each.compare.call for each in spec.outputs if each.compare and each.compare.call]
    model_keys = (spec.custom_ops, spec.inputs_from, reference.weight_inputs, spec.measure)
    needs_model = any((*model_keys, functions))
    # PyTorch's steps are stored only if a tolerance needs them.
    needs_steps = any(has_steps(spec, index) for index in range(len(spec.outputs)))
    if len(records) < len(cells) or needs_model or (needs_steps and not reference.steps):
        return None
    # After a thorough run, the usual samples may have replaced the thorough ones.
    is_thorough = spec.thorough or any(record.thorough for record in records)
    if is_thorough and not reference.thorough:
        return None
    # Only an export adds the samples of a group of files.
    route = records[0].route or opset.route
    operators = records[0].artifact.operators if records[0].artifact else {}
    if not set(reference.captures).issuperset(list_groups(route, operators)):
        return None
    try:
        _copy_artifact(opset, records[0], source, target)
        for sample in reference.samples:
            original, copy = source.sample(sample.index), target.sample(sample.index)
            if copy.exists():
                continue
            # Before the copy: an export would write into a damaged one.
            if hash_sample(original) != sample.sha256:
                raise ValueError(f"{copy.name}: the sample differs from its hash in the reference")
            shutil.copytree(original, copy)
        facts = measure_artifact(target.model(opset.opset), spec.id)
    except (OSError, UnreadableModel, ValueError):
        return None
    if any(record.artifact != facts for record in records):
        return None
    shutil.copyfile(source.reference, target.reference)
    context = CheckContext(
        folder=target,
        opset=opset.opset,
        spec=spec.resolve_cell(opset.opset),
        reference=reference.select(route, operators),
        notes=records[0].notes,
        samples=cache,
    )
    return _run_checks(job, opset, context, records)


def _run_checks(
    job: Job, opset: OpsetJob, context: CheckContext, records: list[Record]
) -> list[Record] | None:
    """Return the updated records, or None if a check fails."""
    # The log and the notes of a record stay as they are.
    prover = FileProver(job.spec, context, SharedFields(route=opset.route, log=""))
    updated: list[Record] = []
    for device, record in zip(opset.devices, records, strict=True):
        result, _ = prover.check(device)
        if result.status is not Status.PASS:
            return None
        thorough = record.thorough or result.thorough
        fingerprint = job.make_fingerprint(record.cell)
        update = {
            "status": result.status,
            "stage": None,
            "check": None,
            "message": "",
            "detail": "",
            "blame": None,
            "checks": result.checks,
            "runtime": result.runtime,
            "seconds": {**record.seconds, **result.seconds},
            "thorough": thorough,
            "proved_on": result.proved_on,
            "fingerprint": fingerprint | ({THOROUGH: "yes"} if thorough else {}),
        }
        updated.append(record.model_copy(update=update))
    return updated


def _copy_artifact(opset: OpsetJob, record: Record, source: JobFolder, target: JobFolder) -> None:
    """Copy the file, its external data and its log.

    Links are no alternative: onnx rejects external data with several hard links.

    Raises:
        OSError: If one of the files cannot be read.
        ValueError: If a name leads out of the folder, or the record has no artifact.
    """
    if record.artifact is None:
        raise ValueError(f"{record.cell}: the record has no artifact")
    for name in (f"{opset.opset}.onnx", *record.artifact.external_data):
        path, copy = source.path / name, target.path / name
        if path.parent != source.path or path.is_symlink():
            raise ValueError(f"{name}: the file is outside the model's folder")
        if not copy.exists():
            shutil.copyfile(path, copy)
    log = source.log(opset.opset)
    if log.is_file() and not log.is_symlink():
        shutil.copyfile(log, target.log(opset.opset))
