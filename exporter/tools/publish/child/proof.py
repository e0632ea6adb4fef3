"""The proof of a published file: the checks of an export with the published samples."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from exporter.checks.files.sample_files import hash_sample
from exporter.checks.protocol import CheckContext
from exporter.core.files import PROJECT_LIMIT, TENSOR_LIMIT, read_regular_file
from exporter.core.text import join_lines, truncate
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference
from exporter.manifest import Device, ModelSpec
from exporter.records.record import Record, Route, Status
from exporter.runtimes import Kernels, load_kernels
from exporter.tools.publish.protocol import PublishRequest, PublishTarget, TargetResult
from exporter.tools.publish.published_folder import MARKER, MODEL, Publication
from exporter.worker.verify.run_checks import (
    FileProver,
    SharedFields,
)

_PROBLEM_LENGTH = 300
#: The runtime if none of the target's devices is available.
_CPU = Device(name="ONNX Runtime on the CPU", runtime="onnxruntime")
#: The names of stored files, and of the published files with their content.
_STORED = re.compile(r"(test_data_set_\d+|weights)/\w+\.pb")
_PUBLISHED = re.compile(rf"(samples/)?{_STORED.pattern}")


class DamagedFolder(Exception):
    """A published folder without the samples that it lists."""


def verify_target(request: PublishRequest, target: PublishTarget) -> TargetResult:
    """Prove one published file on the first of its devices that is available."""
    notes: list[str] = []
    problems: list[str] = []
    folder = Path(target.folder)
    try:
        publication = Publication.model_validate_json(
            read_regular_file(folder / MARKER, PROJECT_LIMIT)
        )
        kernels = load_kernels(request.spec, Path(request.root))
        for device in (*target.devices, _CPU):
            (record,) = prove_folder(folder, None, publication, request.spec, [device], kernels)
            problems = [f"{device.name}: {problem}" for problem in _list_problems(record)]
            if record.status is not Status.UNAVAILABLE:
                break
            notes.append(f"not loaded on {device.name}, which is unavailable: {record.message}")
    except Exception as error:  # kernels are code of the project
        problems = [str(error)]
    texts = (join_lines(problem.replace(f"{folder}/", "")) for problem in problems)
    return TargetResult(
        opset=target.opset,
        problems=tuple(truncate(text, _PROBLEM_LENGTH) for text in texts),
        notes=tuple(notes),
    )


def _list_problems(record: Record) -> list[str]:
    checks = [each for each in record.checks if each.status is not Status.PASS]
    texts = [f"{each.check}: {each.message}" for each in checks]
    return texts or ([] if record.status is Status.PASS else [record.message])


def prove_folder(
    folder: Path,
    file: Path | None,
    publication: Publication,
    spec: ModelSpec,
    devices: Sequence[Device],
    kernels: Kernels,
) -> Iterator[Record]:
    """Yield the record of the published file, or of another one, on each device.

    Args:
        folder: The published folder.
        file: Another file with the same promises.
        publication: The content of `exporter.json`.
        spec: The contract, which has to be resolved for each device.
        devices: The devices.
        kernels: The kernels of custom operators.

    Raises:
        DamagedFolder: If the reference or a sample is missing or changed.
    """
    with _open_samples(folder, publication) as (samples, reference):
        context = CheckContext(
            folder=samples,
            opset=publication.opset,
            spec=spec.resolve_cell(publication.opset),
            reference=reference,
            kernels=kernels,
            file=file or folder / MODEL,
        )
        route = Route(exporter="file", capture="none", reason="published")
        prover = FileProver(spec, context, SharedFields(route=route, log=""))
        for device in devices:
            record, _ = prover.check(device, is_full=True)
            yield record


@contextmanager
def _open_samples(folder: Path, publication: Publication) -> Iterator[tuple[JobFolder, Reference]]:
    """Yield the samples in a temporary folder with the layout of an export."""
    try:
        reference = Reference.read(read_regular_file(JobFolder(folder).reference, PROJECT_LIMIT))
    except (OSError, ValueError) as error:
        raise DamagedFolder(f"reference.json: {error}; publish the file again") from error
    with TemporaryDirectory(prefix="exporter-samples-") as scratch:
        samples = JobFolder(Path(scratch))
        for name, source in publication.sources.items():
            if not _STORED.fullmatch(name) or not _PUBLISHED.fullmatch(source):
                raise DamagedFolder(f"{MARKER}: {source!r} is not the name of a sample's file")
            target = samples.path / name
            target.parent.mkdir(exist_ok=True)
            try:
                target.write_bytes(read_regular_file(folder / source, TENSOR_LIMIT))
            except OSError as error:
                raise DamagedFolder(f"{source} cannot be read: {error}") from error
        for sample in reference.samples:
            path = samples.sample(sample.index)
            if not path.is_dir() or hash_sample(path) != sample.sha256:
                raise DamagedFolder(f"the sample '{sample.name}' differs from its hash")
        yield samples, reference
