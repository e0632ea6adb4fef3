"""The ratio of the file's time to PyTorch's time, if the manifest has `latency`.

Input: a file that passed, its model and the device.
Output: the check `latency` with the ratio of the median times on the declared inputs.

Seconds depend on the machine and its load. File and PyTorch run alternately in one process with one
thread each, so a slow machine affects both. Only the ratio is stored. A ratio never fails here: the
gate compares it with the accepted ratio.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from exporter.checks.protocol import CheckContext
from exporter.core.check_names import LATENCY_CHECK
from exporter.manifest import Device
from exporter.records.record import (
    CheckResult,
    Record,
    Status,
)
from exporter.runtimes import Session, open_session
from exporter.worker.export.export_context import ExportContext
from exporter.worker.reference.eager_run import BufferSnapshot, run_model

#: Rounds: at least and at most. Between these limits the time decides.
_MIN_ROUNDS, _MAX_ROUNDS = 5, 101
_SECONDS = 2.0


def add_latency(
    record: Record, context: ExportContext, check_context: CheckContext, device: Device
) -> Record:
    """Return the record with the check, or unchanged if the cell did not pass."""
    if not check_context.spec.latency or record.status is not Status.PASS:
        return record
    start = time.perf_counter()
    session = open_session(check_context.path, device, check_context.kernels)
    result = measure_latency(context, check_context, session)
    seconds = round(time.perf_counter() - start, 3)
    result = result.model_copy(update={"seconds": seconds})
    return record.model_copy(update={"checks": (*record.checks, result)})


def measure_latency(
    context: ExportContext, check_context: CheckContext, session: Session
) -> CheckResult:
    """Return the result of the check `latency`."""
    (declared,) = [
        sample for sample in check_context.reference.samples if sample.kind == "declared"
    ]
    inputs = check_context.read(declared).inputs
    state = BufferSnapshot(context.model)

    def run_pytorch() -> None:
        run_model(context.model, context.spec, context.inputs)

    def run_file() -> None:
        session.run(inputs)

    try:
        ratio, rounds = measure_ratio(run_file, run_pytorch)
    finally:
        state.restore()
    metrics: dict[str, int | float | str] = {"ratio": float(f"{ratio:.3g}"), "turns": rounds}
    return CheckResult(check=LATENCY_CHECK, status=Status.PASS, metrics=metrics)


def measure_ratio(file: Callable[[], None], pytorch: Callable[[], None]) -> tuple[float, int]:
    """Return the ratio of the median times and the number of rounds."""
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
    return median(file_times) / median(pytorch_times), len(file_times)
