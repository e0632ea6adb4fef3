"""The file's time beside PyTorch's, where the manifest asks for it.

In: a file that passed, its model, and the device. Out: the check `measure_latency`: the ratio of the median
times on the declared inputs.

Seconds say more of a machine and its load than of a file. Both take turns in one process, with one
thread each, so that what slows one slows the other; the ratio is all that is kept. No ratio is
wrong by itself: the gate holds it against the accepted one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from exporter.checks.protocol import CheckContext
from exporter.manifest import Device
from exporter.records.record import (
    LATENCY_CHECK,
    CheckResult,
    Record,
    Status,
)
from exporter.runtimes import Session, open_session
from exporter.worker.export.export_context import ExportContext
from exporter.worker.reference.eager_run import BufferSnapshot, run_model

#: Turns of both: so many at least, then more until the time is over.
_LEAST, _MOST = 5, 101
_SECONDS = 2.0


def add_latency(
    record: Record, case: ExportContext, subject: CheckContext, device: Device
) -> Record:
    """The record with the check; of what is wrong, how fast it is says nothing."""
    if not subject.spec.latency or record.status is not Status.PASS:
        return record
    start = time.perf_counter()
    session = open_session(subject.path, device, subject.kernels)
    result = measure_latency(case, subject, session)
    spent = round(time.perf_counter() - start, 3)
    result = result.model_copy(update={"seconds": spent})
    return record.model_copy(update={"checks": (*record.checks, result)})


def measure_latency(case: ExportContext, subject: CheckContext, session: Session) -> CheckResult:
    """Measures."""
    (declared,) = [each for each in subject.reference.samples if each.kind == "declared"]
    inputs = subject.read(declared).inputs
    state = BufferSnapshot(case.model)

    def pytorch() -> None:
        run_model(case.model, case.spec, case.inputs)

    def file() -> None:
        session.run(inputs)

    try:
        ratio, turns = measure_ratio(file, pytorch)
    finally:
        state.restore()
    metrics: dict[str, int | float | str] = {"ratio": float(f"{ratio:.3g}"), "turns": turns}
    return CheckResult(check=LATENCY_CHECK, status=Status.PASS, metrics=metrics)


def measure_ratio(file: Callable[[], None], pytorch: Callable[[], None]) -> tuple[float, int]:
    """The ratio of the medians, and how often each had its turn."""
    file()  # the first call of either makes what later ones find
    pytorch()
    files: list[float] = []
    pytorches: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(files) < _LEAST or (len(files) < _MOST and time.perf_counter() < end):
        turns = [(file, files), (pytorch, pytorches)]
        # Who goes first finds the caches as the other left them.
        for call, spent in turns if len(files) % 2 else reversed(turns):
            start = time.perf_counter()
            call()
            spent.append(time.perf_counter() - start)
    return median(files) / median(pytorches), len(files)
