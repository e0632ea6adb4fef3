"""A process that only loads a file and runs it once, to measure its load time and peak memory.

In the worker, PyTorch and other files would hide both. A device with an environment is measured
in a process of that environment.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from onnx import parser

from exporter.checks.protocol import CheckContext
from exporter.core.files import PROJECT_LIMIT, read_regular_file
from exporter.core.frozen_model import FrozenModel
from exporter.jobs import JobFolder, Reference
from exporter.manifest import Device, ModelSpec
from exporter.runtimes import load_kernels, measure_file_load

_SMALL = '<ir_version: 7, opset_import: ["" : 13]> g (float[1] x) => (float[1] y) {y = Relu(x)}'


class SessionFigures(FrozenModel):
    """The measured load."""

    seconds: float
    """The shortest load: from the call until the session exists."""
    small_seconds: float
    """The same for a file with one node."""
    bytes: int
    """The growth of memory by the session and its first run."""


def measure_session(
    root: Path, folder: Path, opset: int, spec: ModelSpec, device: Device
) -> SessionFigures:
    """Load the file of a job, run it once on the declared inputs, and return the figures.

    Args:
        root: The folder of the project.
        folder: The folder of the job.
        opset: The opset of the file.
        spec: The entry.
        device: The device of the session.
    """
    job = JobFolder(folder)
    kernels = load_kernels(spec, root)
    context = CheckContext(
        folder=job,
        opset=opset,
        spec=spec,
        reference=Reference.read(read_regular_file(job.reference, PROJECT_LIMIT)),
        kernels=kernels,
    )
    (declared,) = [each for each in context.reference.samples if each.kind == "declared"]
    inputs = context.read(declared).inputs
    with TemporaryDirectory() as scratch:
        small = Path(scratch) / "small.onnx"
        small.write_bytes(parser.parse_model(_SMALL).SerializeToString())
        figures = measure_file_load(context.path, small, device, kernels, inputs)
    return SessionFigures(**figures._asdict())
