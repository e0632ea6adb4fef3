"""A process that only loads a file and runs it once, to measure its load time and peak memory.

In the worker, PyTorch and other files would hide both. The command line names a request and a
response: see `processes/request.py`.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from onnx import parser

from exporter.checks.protocol import CheckContext
from exporter.core.frozen_model import FrozenModel
from exporter.core.regular_files import PROJECT_LIMIT, read_regular_file
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference
from exporter.manifest import Device, ModelSpec
from exporter.processes.request import serve_request
from exporter.runtimes import NO_KERNELS, Kernels, load_kernels, open_session

#: The number of loads: between these limits the time decides.
_MIN_LOADS, _MAX_LOADS = 3, 30
_SECONDS = 0.5
_SMALL = '<ir_version: 7, opset_import: ["" : 13]> g (float[1] x) => (float[1] y) {y = Relu(x)}'
_STATUS, _CLEAR_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class SessionRequest(FrozenModel):
    """The file of one cell."""

    root: str
    folder: str
    """The folder of the job."""
    opset: int
    spec: ModelSpec
    device: Device


class SessionFigures(FrozenModel):
    """The measured load."""

    seconds: float
    """The shortest load: from the call until the session exists."""
    small_seconds: float
    """The same for a file with one node."""
    bytes: int
    """The growth of memory by the session and its first run."""


def measure_session(request: SessionRequest) -> SessionFigures:
    """Load the file, run it once on the declared inputs, and return the figures."""
    folder = JobFolder(Path(request.folder))
    kernels = load_kernels(request.spec, Path(request.root))
    context = CheckContext(
        folder=folder,
        opset=request.opset,
        spec=request.spec,
        reference=Reference.read(read_regular_file(folder.reference, PROJECT_LIMIT)),
        kernels=kernels,
    )
    (declared,) = [each for each in context.reference.samples if each.kind == "declared"]
    inputs = context.read(declared).inputs
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "small.onnx"
        path.write_bytes(parser.parse_model(_SMALL).SerializeToString())
        small = _time_loads(path, request.device)  # also imports and starts the runtime
    before = _reset_peak()
    session = open_session(context.path, request.device, kernels)
    session.run(inputs)
    growth = max(0, _read_peak() - before)
    del session
    seconds = _time_loads(context.path, request.device, kernels)
    return SessionFigures(seconds=seconds, small_seconds=small, bytes=growth)


def _time_loads(path: Path, device: Device, kernels: Kernels = NO_KERNELS) -> float:
    """Return the shortest time of many loads: other processes only make a load longer."""
    times: list[float] = []
    while len(times) < _MIN_LOADS or (len(times) < _MAX_LOADS and sum(times) < _SECONDS):
        start = time.perf_counter()
        open_session(path, device, kernels)
        times.append(time.perf_counter() - start)
    return min(times)


def _reset_peak() -> int:
    """Set the peak of this process to its current memory, and return it."""
    with suppress(OSError):  # not Linux, or a container without this file
        _CLEAR_PEAK.write_text("5", encoding="ascii")
    return _read_peak()


def _read_peak() -> int:
    """Return the largest resident memory of this process in bytes."""
    try:
        lines = _STATUS.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource  # not on Windows

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak << 10


def _handle(content: bytes) -> str:
    return measure_session(SessionRequest.model_validate_json(content)).to_json()


if __name__ == "__main__":
    serve_request(_handle)
