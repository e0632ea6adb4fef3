"""The measurements that the manifest requests: latency, load time and peak memory.

Seconds depend on the machine and its load. File and PyTorch run alternately in one process with one
thread each, so a slow machine affects both. Load time and memory are measured in a process of their
own. A measurement never fails a cell: the gate compares its ratios with the accepted ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from onnx import parser

from exporter.checks.protocol import CheckedFile
from exporter.core.files import PROJECT_LIMIT, read_regular_file
from exporter.jobs import JobFolder, Reference
from exporter.manifest import Device, ModelSpec
from exporter.processes.child_call import ChildFailure, call_in_child
from exporter.records.record import (
    Latency,
    LoadTime,
    Measurements,
    PeakMemory,
    Record,
    Status,
)
from exporter.runtimes import RuntimeProcessEnd, open_session
from exporter.runtimes.drivers.driver import LoadFigures
from exporter.runtimes.load_figures import measure_file_load
from exporter.worker.export.attempts import OpsetExport
from exporter.worker.model.kernels import load_kernels
from exporter.worker.reference.eager_run import BufferSnapshot, run_model
from exporter.worker.reference.rollout import make_loops

_SMALL = '<ir_version: 7, opset_import: ["" : 13]> g (float[1] x) => (float[1] y) {y = Relu(x)}'


def measure_session(
    root: Path, folder: Path, opset: int, spec: ModelSpec, device: Device
) -> LoadFigures:
    """Load the file of a job, run it once on the declared inputs, and return the figures.

    In the worker, PyTorch and other files would hide the seconds and the memory of this load. A
    device with an environment is measured in a process of that environment.
    """
    job = JobFolder(folder)
    kernels = load_kernels(spec, root)
    checked = CheckedFile(
        folder=job,
        opset=opset,
        spec=spec,
        reference=Reference.read(read_regular_file(job.reference, PROJECT_LIMIT)),
        kernels=kernels,
    )
    (declared,) = [each for each in checked.reference.samples if each.kind == "declared"]
    inputs = checked.read(declared).inputs
    with TemporaryDirectory() as scratch:
        small = Path(scratch) / "small.onnx"
        small.write_bytes(parser.parse_model(_SMALL).SerializeToString())
        return measure_file_load(checked.path, small, device, kernels, inputs)


#: Rounds: at least and at most. Between these limits the time decides.
_MIN_ROUNDS, _MAX_ROUNDS = 5, 101
_SECONDS = 2.0
_FUNCTION = "exporter.worker.verify.measurement:measure_session"


def add_measurements(
    record: Record, opset_export: OpsetExport, checked: CheckedFile, device: Device
) -> Record:
    """Return the record with the requested measurements, or unchanged if the cell did not pass."""
    requested = checked.spec.measure
    if not requested or record.status is not Status.PASS or record.artifact is None:
        return record
    notes = record.notes
    try:
        file_times, pytorch_times, tokens = _time_runs(opset_export, checked, device)
    except RuntimeProcessEnd as error:
        return record.model_copy(update={"notes": (*notes, f"nothing was measured: {error}")})
    middle = median(file_times)
    latency = Latency(
        median=_round(middle),
        p95=_round(quantiles(file_times, n=20)[-1]),
        ratio=_round(middle / median(pytorch_times)),
        turns=len(file_times),
        tokens=tokens,
    )
    measured: dict[str, Any] = {"latency": latency}
    if {"load", "memory"} & set(requested):
        figures = _measure_session(opset_export, checked, device)
        if isinstance(figures, str):
            notes = (*notes, f"load time and memory were not measured: {figures}")
        else:
            ratio = _round(figures.seconds / figures.small_seconds)
            measured["load"] = LoadTime(seconds=_round(figures.seconds), ratio=ratio)
            share = _round(figures.bytes / record.artifact.bytes)
            measured["memory"] = PeakMemory(bytes=figures.bytes, ratio=share)
    values = Measurements(**{name: measured[name] for name in measured if name in requested})
    return record.model_copy(update={"measurements": values, "notes": notes})


def _time_runs(
    opset_export: OpsetExport, checked: CheckedFile, device: Device
) -> tuple[list[float], list[float], int]:
    """Return the seconds of the runs of file and PyTorch, and the tokens of each run.

    Returns:
        0 tokens if a run is one call.
    """
    session = open_session(checked.path, device, checked.kernels)
    (declared,) = [sample for sample in checked.reference.samples if sample.kind == "declared"]
    inputs = checked.read(declared).inputs
    state = BufferSnapshot(opset_export.model)

    def run_pytorch() -> None:
        run_model(opset_export.model, opset_export.spec, opset_export.inputs)

    def run_file() -> None:
        session.run(inputs)

    loops = make_loops(opset_export.model, checked, session)
    run_file, run_pytorch, tokens = loops or (run_file, run_pytorch, 0)
    try:
        return *time_alternately(run_file, run_pytorch), tokens
    finally:
        state.restore()


def _measure_session(
    opset_export: OpsetExport, checked: CheckedFile, device: Device
) -> LoadFigures | str:
    """Return the figures of the file in a process of its own, or the reason why there are none."""
    arguments = {
        "root": opset_export.root,
        "folder": checked.path.parent,
        "opset": checked.opset,
        "spec": checked.spec,
        "device": device,
    }
    try:
        # In the worker's process group, which a timeout kills.
        return call_in_child(_FUNCTION, arguments, LoadFigures, None)
    except ChildFailure as failure:
        return f"its process {failure}"


def _round(value: float) -> float:
    return float(f"{value:.3g}")


def time_alternately(
    file: Callable[[], None], pytorch: Callable[[], None]
) -> tuple[list[float], list[float]]:
    """Return the seconds of the runs of both calls, which alternate."""
    file()  # the first call of each also initializes it
    pytorch()
    file_times: list[float] = []
    pytorch_times: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(file_times) < _MIN_ROUNDS or (
        len(file_times) < _MAX_ROUNDS and time.perf_counter() < end
    ):
        calls = [(file, file_times), (pytorch, pytorch_times)]
        # The order alternates, because the first call changes the caches for the second.
        for call, times in calls if len(file_times) % 2 else reversed(calls):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return file_times, pytorch_times
