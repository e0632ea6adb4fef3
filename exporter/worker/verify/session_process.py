"""A process that only loads a file and runs it once, to measure its load time and peak memory.

In the worker, PyTorch and other files would hide both. A device with an environment is measured
in a process of that environment. The command line names a request and a response: see
`processes/request.py`.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from onnx import parser

from exporter.checks.protocol import CheckContext
from exporter.core.files import PROJECT_LIMIT, read_regular_file
from exporter.core.frozen_model import FrozenModel
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference
from exporter.manifest import Device, ModelSpec
from exporter.processes.request import serve_request
from exporter.runtimes import load_kernels, measure_file_load

_SMALL = '<ir_version: 7, opset_import: ["" : 13]> g (float[1] x) => (float[1] y) {y = Relu(x)}'


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
        small = Path(scratch) / "small.onnx"
        small.write_bytes(parser.parse_model(_SMALL).SerializeToString())
        figures = measure_file_load(context.path, small, request.device, kernels, inputs)
    return SessionFigures(**figures._asdict())


def _handle(content: bytes) -> str:
    return measure_session(SessionRequest.model_validate_json(content)).to_json()


if __name__ == "__main__":
    serve_request(_handle)
