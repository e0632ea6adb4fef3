"""Run the real worker in this process on one trap."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from exporter.checks.protocol import CheckedFile
from exporter.jobs import Job, JobFolder, OpsetJob, Reference, write_json
from exporter.manifest import Device, ModelSpec
from exporter.planning.plan import choose_route
from exporter.records.record import Record
from exporter.worker import fork_server
from exporter.worker.dependencies import packages, source_files
from exporter.worker.dependencies.source_files import list_module_files
from exporter.worker.job_output import JobOutput
from exporter.worker.job_runner import run_job
from exporter.worker.process.fork_call import compute_in_fork
from exporter.worker.process.setup import start_derivatives
from exporter.worker.verify.run_checks import FileProof
from tests.integration.program_server import call_in_forks
from tests.traps.trap import ROOT, Trap

# Before a test captures a program, as in each worker: forks can compute derivatives then.
start_derivatives()
#: The modules of these files are loaded here and in no worker, except the models.
_TESTS = f"{ROOT}/tests/"
CPU = Device(name="cpu", runtime="onnxruntime", providers=("CPUExecutionProvider",))


def make_record(trap: Trap, folder: Path, *, diagnose: bool = False) -> Record:
    """Export the model of a trap, or change a copy of its file, and prove it."""
    if trap.tamper is None:
        (record,) = export(trap.spec, folder, diagnose=diagnose)
        return record
    copy = folder / "copy"
    shutil.copytree(_get_sound_folder(trap.spec), copy)
    trap.tamper(JobFolder(copy).model(trap.opset))
    return prove(trap.spec, copy)


@cache
def preload() -> None:
    """Import what the server of workers imports, once for all forks."""
    fork_server.preload()
    fork_server.preload_capture()


def run_in_fork(run: Callable[[], Record]) -> Record:
    """Return the record of a function that runs in a process in which no other model ran.

    A cell has a process of its own, and the first run that Python or torch observes in a process
    may show less than later ones.
    """

    preload()

    def call() -> tuple[str, str]:
        try:
            return run().to_json(), ""
        except Exception:  # noqa: BLE001 - the fork sends the text of any exception
            return "", traceback.format_exc()

    text, error = compute_in_fork(call) or ("", "the process ended early")
    assert not error, error
    return Record.read(text.encode())


def export(
    spec: ModelSpec,
    folder: Path,
    *,
    root: Path = ROOT,
    opsets: tuple[OpsetJob, ...] = (),
    diagnose: bool = False,
) -> tuple[Record, ...]:
    """Run one model with the stages of a real job, at its opsets on the CPU by default.

    A diagnosis exports a red model several times, and a verdict does not need it.
    """
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
    # A worker has one thread and so may fork; the processes of pytest-xdist have more.
    one_thread = patch.object(threading, "active_count", return_value=1)
    with _restore_streams(), one_thread, ExitStack() as patches, warnings.catch_warnings():
        for module in (packages, source_files):
            patches.enter_context(patch.object(module, "list_module_files", _list_module_files))
        if spec.passes:
            patches.enter_context(call_in_forks())
        elif not diagnose:
            patches.enter_context(patch.object(JobOutput, "diagnose"))
        warnings.simplefilter("ignore")  # a worker prints them into its log
        run_job(job)
    records = JobFolder(folder).read_records().values()
    return tuple(sorted(records, key=lambda record: record.cell.sort_key))


def prove(spec: ModelSpec, folder: Path) -> Record:
    """Run only the checks on an existing file with PyTorch's outputs."""
    (opset,) = spec.opsets
    files = JobFolder(folder)
    reference = Reference.read(files.reference.read_bytes())
    subject = CheckedFile(folder=files, opset=opset, spec=spec, reference=reference)
    return FileProof(spec=spec, checked=subject, route=choose_route(spec, opset)).prove(CPU)


#: Keeps the folders of `_sound` until the process ends.
_FOLDERS: list[TemporaryDirectory[str]] = []


def _get_sound_folder(spec: ModelSpec) -> Path:
    """Return the folder of a model that passes; it is exported once for all changes of its file."""
    return _exported(spec.to_json())


@cache
def _exported(text: str) -> Path:
    spec = ModelSpec.model_validate_json(text)
    _FOLDERS.append(TemporaryDirectory(prefix="trap-"))
    folder = Path(_FOLDERS[-1].name) / "sound"
    (record,) = export(spec, folder)
    if record.status.is_red:
        raise AssertionError(f"{spec.source} is not sound to begin with: {record.message}")
    return folder


def _list_module_files() -> list[str]:
    """Return the files of the loaded modules of a worker, which has none of the tests."""
    files = list_module_files()
    return [file for file in files if not file.startswith(_TESTS) or "/models/" in file]


@contextmanager
def _restore_streams() -> Iterator[None]:
    """Restore descriptors 1 and 2, which the worker redirects to its log."""
    copies = {number: os.dup(number) for number in (1, 2)}
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in copies.items():
            os.dup2(copy, number)
            os.close(copy)
