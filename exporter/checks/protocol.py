"""What a check gets and what it answers.

In: a `CheckContext` (the file and its contract), and for checks that run it a `Session`.
Out: a `CheckResult`. A check never raises for what it finds: a file that it cannot read fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from exporter.checks.files.sample_files import SampleCache, SampleData
from exporter.checks.files.weight_inputs import read_weight_inputs
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference, Sample
from exporter.manifest import ModelSpec
from exporter.records.record import CheckResult
from exporter.runtimes import NO_KERNELS, Kernels, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """One exported file, what it has to be, and what PyTorch says about the same inputs."""

    folder: JobFolder
    opset: int
    spec: ModelSpec
    reference: Reference
    notes: tuple[str, ...] = ()
    """What the exporter said of the file while it made it."""
    samples: SampleCache = field(default_factory=SampleCache, compare=False, repr=False)
    """Shared by the files of one job."""
    kernels: Kernels = NO_KERNELS
    """Of the custom operators in the file."""

    @property
    def path(self) -> Path:
        """The `.onnx` file."""
        return self.folder.model(self.opset)

    def read(self, sample: Sample) -> SampleData:
        """What PyTorch was given and gave back.

        Raises:
            DamagedSample: where it cannot be read.
        """
        data = self.samples.read(self.folder.sample(sample.index), self.spec)
        if not self.spec.weights_are_inputs:
            return data
        declared = [item.name for item in self.spec.inputs]
        fed = read_weight_inputs(self.path, self.folder, self.reference.weight_inputs, declared)
        return replace(data, inputs={**data.inputs, **fed})


class StructureCheck(Protocol):
    """Reads the file; no runtime needed."""

    def __call__(self, subject: CheckContext) -> CheckResult:
        """Holds one promise against the file."""


class RuntimeCheck(Protocol):
    """Runs the file, or says whether running it proves anything."""

    @property
    def name(self) -> str:
        """As it stands in records and in the manifest's `expect`."""

    def applies(self, subject: CheckContext) -> bool:
        """Whether the contract promises anything of the kind; else there is no result."""

    def __call__(self, subject: CheckContext, session: Session, device: str) -> CheckResult:
        """Holds one promise against what the session puts out."""
