"""The real worker in this process, on one trap.

In: a `Trap` and an empty folder. Out: the `Record` of its cell, as the worker wrote it.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from exporter.checks.protocol import CheckContext
from exporter.jobs.job import Job, OpsetJob
from exporter.jobs.job_folder import JobFolder, write_json
from exporter.jobs.reference import Reference
from exporter.manifest import Device, ModelSpec
from exporter.planning.plan import choose_route
from exporter.records.record import Record
from exporter.worker.job_runner import run_job
from exporter.worker.verify.run_checks import (
    SharedFields,
    StageTimes,
    check_on_device,
    run_structure_checks,
)
from tests.traps.trap import ROOT, Trap

CPU = Device(name="cpu", runtime="onnxruntime", providers=("CPUExecutionProvider",))


def record_of(trap: Trap, folder: Path) -> Record:
    """Exports the model of a trap, or tampers with a copy of its file, and proves it."""
    if trap.tamper is None:
        (record,) = export(trap.spec, folder)
        return record
    copy = folder / "copy"
    shutil.copytree(_sound(trap.spec), copy)
    trap.tamper(JobFolder(copy).model(trap.opset))
    return prove(trap.spec, copy)


def export(
    spec: ModelSpec, folder: Path, *, root: Path = ROOT, opsets: tuple[OpsetJob, ...] = ()
) -> tuple[Record, ...]:
    """Run one model with the stages of a real job, at its opsets on the CPU by default."""
    on_cpu = (
        OpsetJob(opset=opset, route=choose_route(spec, opset), devices=(CPU,))
        for opset in spec.opsets
    )
    job = Job(
        spec=spec,
        root=str(root),
        build=str(folder.parent),
        folder=str(folder),
        opsets=opsets or tuple(on_cpu),
    )
    write_json(JobFolder(folder).job, job)  # its time tells which sources changed meanwhile
    with _own_streams(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a worker prints them into its log
        run_job(job)
    records = JobFolder(folder).read_records().values()
    return tuple(sorted(records, key=lambda record: record.cell.sort_key))


def prove(spec: ModelSpec, folder: Path) -> Record:
    """Run only the checks on an existing file with PyTorch's outputs."""
    (opset,) = spec.opsets
    files = JobFolder(folder)
    reference = Reference.read(files.reference.read_bytes())
    subject = CheckContext(folder=files, opset=opset, spec=spec, reference=reference)
    common = SharedFields(route=choose_route(spec, opset), log="")
    return check_on_device(CPU, subject, run_structure_checks(subject), common, StageTimes())


#: Keeps the folders of `_sound` until the process ends.
_KEPT: list[TemporaryDirectory[str]] = []


def _sound(spec: ModelSpec) -> Path:
    """The folder of a model that passes, exported once for all that is done to its file."""
    return _exported(spec.to_json())


@cache
def _exported(text: str) -> Path:
    spec = ModelSpec.model_validate_json(text)
    _KEPT.append(TemporaryDirectory(prefix="trap-"))
    folder = Path(_KEPT[-1].name) / "sound"
    (record,) = export(spec, folder)
    if record.status.is_red:
        raise AssertionError(f"{spec.source} is not sound to begin with: {record.message}")
    return folder


@contextmanager
def _own_streams() -> Iterator[None]:
    """Descriptors 1 and 2 as they were: the worker sends them to its log."""
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)
