"""New checks of an existing file: its records, if only promises or devices changed.

The samples of a file are also those of another one with the same promises.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from exporter.cache.fingerprint import DEVICE, THOROUGH, drop_check_parts
from exporter.checks.model_file import UnreadableModel, measure_artifact, read_model
from exporter.checks.protocol import CheckedFile, SampleCache, hash_sample
from exporter.core.files import PROJECT_LIMIT
from exporter.jobs import Job, JobFolder, OpsetJob, Reference, list_groups
from exporter.manifest import Device, ModelSpec
from exporter.manifest.resolved.model import has_steps
from exporter.manifest.syntax.table import list_functions, select_keys
from exporter.records.record import UNPROVED_PREFIX, CellId, Record, Route, Status
from exporter.worker.dependencies.packages import list_loaded_packages
from exporter.worker.verify.run_checks import FileProof


def recheck(job: Job, opset: OpsetJob, cache: SampleCache) -> list[Record] | None:
    """Copy the files into the job's folder and run the current checks on them.

    No code of the model is loaded, so a changed tolerance costs seconds only.

    Returns:
        None if the file has to be exported again: the build folder has no reference or no record
        for one of the cells, a check needs the model (`_needs_export`), or a file is missing,
        damaged or other than the one in the records.
    """
    target = JobFolder(Path(job.folder))
    source = JobFolder(Path(job.build) / opset.reuse_from)
    stored = source.read_records()
    cells = job.list_opset_cells(opset)
    adapted = [stored.get(cell) or _adapt_record(job, cell, stored.values()) for cell in cells]
    records = [record for record in adapted if record]
    reference = Reference.find(source.reference, PROJECT_LIMIT)
    if reference is None or len(records) < len(cells):
        return None
    if _needs_export(job.spec, opset, source, reference, records):
        return None
    try:
        _copy_artifact(opset, records[0], source, target)
        _copy_samples(reference, source, target)
        facts = measure_artifact(target.model(opset.opset), opset.reuse_from)
        if any(record.artifact != facts for record in records):
            return None
        if job.spec.id != opset.reuse_from and not job.spec.artifact:
            _write_name(target.model(opset.opset), job.spec.id)
        facts = measure_artifact(target.model(opset.opset), job.spec.id)
    except (OSError, UnreadableModel, ValueError):
        return None
    records = [record.model_copy(update={"artifact": facts}) for record in records]
    shutil.copyfile(source.reference, target.reference)
    checked = CheckedFile(
        folder=target,
        opset=opset.opset,
        spec=job.spec.resolve_cell(opset.opset),
        reference=reference.select(_find_route(opset, records), _list_operators(records)),
        notes=records[0].notes,
        samples=cache,
    )
    return _update_records(job, opset, checked, records)


def prove_other_file(
    folder: Path, spec: ModelSpec, path: Path, opset: int, device: Device, known: Record | None
) -> tuple[Record, ...]:
    """Return the record of another file with the samples of a finished job; no model is loaded.

    `folder`: That of the job in its build folder; `spec` has the names of the file.
    `known`: The record of the job's own file on this device, with its reasons.

    Returns:
        Nothing if the verdict needs the model: a check runs it, it was not run on the samples of
        such a file, or this file is red in another way than the job's own one, so that rounding may
        be the reason, or the reason is not known.
    """
    job = JobFolder(folder)
    reference = Reference.find(job.reference, PROJECT_LIMIT)
    if reference is None or job.contract.exists() or _needs_model(spec, reference):
        return ()
    try:
        artifact = measure_artifact(path, spec.id)
    except (OSError, UnreadableModel, ValueError):
        return ()
    route = Route(exporter="file", capture="none", reason=f"the file is {path}")
    groups = list_groups(route, artifact.operators)
    if spec.free_axes and not set(reference.captures).issuperset(groups):
        return ()
    checked = CheckedFile(
        folder=job,
        opset=opset,
        spec=spec.resolve_cell(opset),
        reference=reference.select(route, artifact.operators),
        file=path,
    )
    texts = [text for group in ("", *groups) for text in reference.unproved.get(group, ())]
    notes = tuple(f"{UNPROVED_PREFIX}{text}" for text in texts)
    proof = FileProof(spec=spec, checked=checked, route=route, artifact=artifact, notes=notes)
    record = proof.prove(device, is_full=True)
    if record.status is Status.PASS:
        return (record,)
    if known is None or _list_problems(known) != _list_problems(record):
        return ()
    return (record.model_copy(update={"advice": known.advice}),)


def _list_problems(record: Record) -> tuple[object, ...]:
    checks = [each for each in record.checks if each.status is not Status.PASS]
    problems = [(each.check, each.status, each.message) for each in checks]
    return (record.status, record.stage, record.check, record.message, *problems)


def _needs_model(spec: ModelSpec, reference: Reference) -> bool:
    """Return whether a check needs a thing that only a job with the model makes."""
    # Kernels, call objects, weight inputs and PyTorch's time are only available with the model.
    # Only an export records the files that a comparator of the project reads.
    keys = [getattr(spec, key) for key in select_keys(ModelSpec, needs_model=True)]
    weights = (reference.weight_inputs, reference.constant_weights)
    return any((*keys, *weights, *list_functions(spec.outputs)))


def _needs_export(
    spec: ModelSpec,
    opset: OpsetJob,
    earlier: JobFolder,
    reference: Reference,
    records: Sequence[Record],
) -> bool:
    """Return whether a check needs a thing that only an export of the model makes."""
    if _needs_model(spec, reference):
        return True
    # PyTorch's steps are stored only if a tolerance needs them.
    needs_steps = any(has_steps(spec, index) for index in range(len(spec.outputs)))
    if needs_steps and not reference.steps:
        return True
    # Another file may depend on the name, and `contract.json` contains it.
    is_renamed = spec.id != opset.reuse_from
    if is_renamed and (spec.passes or earlier.contract.exists()):
        return True
    # After a thorough run, the usual samples may have replaced the thorough ones.
    is_thorough = spec.thorough or any(record.thorough for record in records)
    if is_thorough and not reference.thorough:
        return True
    # Only an export adds the samples of a group of files.
    groups = list_groups(_find_route(opset, records), _list_operators(records))
    return not set(reference.captures).issuperset(groups)


def _find_route(opset: OpsetJob, records: Sequence[Record]) -> Route:
    """Return the route that wrote the file of these records."""
    return records[0].route or opset.route


def _list_operators(records: Sequence[Record]) -> Mapping[str, int]:
    """Return the operators of the file of these records, with their counts."""
    return records[0].artifact.operators if records[0].artifact else {}


def _copy_samples(reference: Reference, earlier: JobFolder, target: JobFolder) -> None:
    """Copy the samples that the job's folder lacks; a ValueError means that one is damaged."""
    for sample in reference.samples:
        original, copy = earlier.sample(sample.index), target.sample(sample.index)
        if copy.exists():
            continue
        # Before the copy: an export would write into a damaged one.
        if hash_sample(original) != sample.sha256:
            raise ValueError(f"{copy.name}: the sample differs from its hash in the reference")
        shutil.copytree(original, copy)


def _adapt_record(job: Job, cell: CellId, records: Iterable[Record]) -> Record | None:
    """Return a green record of the same file, of another device or name, as that of a cell."""
    parts = drop_check_parts(job.make_fingerprint(cell))
    for record in records:
        is_proved = record.status is Status.PASS and not record.untracked
        is_same_file = record.cell.opset == cell.opset and is_proved
        if is_same_file and drop_check_parts(record.fingerprint) == parts:
            log = f"{cell.model}/{record.log.partition('/')[2]}"
            update = {"cell": cell, "flaky": "", "measurements": None, "log": log}
            return record.model_copy(update=update)
    return None


def _write_name(path: Path, name: str) -> None:
    """Write the name of a model into the metadata of its file."""
    proto = read_model(path)
    for item in proto.metadata_props:
        item.value = name if item.key == "exporter.model" else item.value
    path.write_bytes(proto.SerializeToString(deterministic=True))


def _update_records(
    job: Job, opset: OpsetJob, checked: CheckedFile, records: list[Record]
) -> list[Record] | None:
    """Return the updated records, or None if a check fails."""
    # The log and the notes of a record stay as they are.
    proof = FileProof(spec=job.spec, checked=checked, route=opset.route)
    updated: list[Record] = []
    for device, record in zip(opset.devices, records, strict=True):
        result = proof.prove(device)
        if result.status not in (Status.PASS, Status.UNAVAILABLE):
            return None
        thorough = record.thorough or result.thorough
        fingerprint = job.make_fingerprint(record.cell)
        update: dict[str, object] = {
            "status": result.status,
            "stage": result.stage,
            "check": None,
            "message": result.message,
            "is_final": result.is_final,
            "absent": result.absent,
            "detail": "",
            "lines": (),
            "blame": None,
            "advice": (),
            "checks": result.checks,
            "runtime": result.runtime,
            "seconds": {**record.seconds, **result.seconds},
            "thorough": thorough,
            "proved_on": result.proved_on,
            "fingerprint": fingerprint | ({THOROUGH: "yes"} if thorough else {}),
        }
        if record.fingerprint.get(DEVICE) != fingerprint.get(DEVICE):
            # The runtime of another device can have other packages.
            update["packages"] = record.packages | list_loaded_packages(Path(job.root))
        updated.append(record.model_copy(update=update))
    return updated


def _copy_artifact(opset: OpsetJob, record: Record, earlier: JobFolder, target: JobFolder) -> None:
    """Copy the file, its external data and its log.

    Links are no alternative: onnx rejects external data with several hard links. A ValueError means
    that a name leads out of the folder, or that the record has no artifact.
    """
    if record.artifact is None:
        raise ValueError(f"{record.cell}: the record has no artifact")
    for name in (f"{opset.opset}.onnx", *record.artifact.external_data):
        path, copy = earlier.path / name, target.path / name
        if path.parent != earlier.path or path.is_symlink():
            raise ValueError(f"{name}: the file is outside the model's folder")
        if not copy.exists():
            shutil.copyfile(path, copy)
    log = earlier.log(opset.opset)
    if log.is_file() and not log.is_symlink():
        shutil.copyfile(log, target.log(opset.opset))
