"""The input and the interface of a check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import onnx

from exporter.checks.model_file import UnreadableModel, read_model
from exporter.checks.sample_files import SampleCache, SampleData, read_weight_inputs
from exporter.core.import_object import load_attribute
from exporter.jobs import JobFolder, Reference, Sample
from exporter.manifest import ModelSpec
from exporter.records.record import CheckResult, Status
from exporter.runtimes import NO_KERNELS, Kernels, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """One exported file with its contract and PyTorch's reference outputs."""

    folder: JobFolder
    opset: int
    spec: ModelSpec
    reference: Reference
    notes: tuple[str, ...] = ()
    """Warnings of the exporter about the file."""
    samples: SampleCache = field(default_factory=SampleCache, compare=False, repr=False)
    """Shared by the files of one job."""
    kernels: Kernels = NO_KERNELS
    """Kernels of the custom operators in the file."""
    file: Path | None = None
    """The `.onnx` file if it is not in the folder of a model."""
    is_short: bool = False
    """Whether the file is compared with few samples; see `Reference.shorten`."""
    root: Path = Path()
    """The folder of the project, with the functions that the contract names."""

    @property
    def path(self) -> Path:
        """The `.onnx` file."""
        return self.file or self.folder.model(self.opset)

    def read(self, sample: Sample) -> SampleData:
        """Return PyTorch's inputs and outputs, and the weights if they are inputs.

        Raises:
            DamagedSample: if the stored sample cannot be read.
        """
        data = self.samples.read(self.folder.sample(sample.index), self.spec)
        if not self.spec.weights_are_inputs:
            return data
        declared = [item.name for item in self.spec.inputs]
        weights = read_weight_inputs(self.path, self.folder, self.reference.weight_inputs, declared)
        return replace(data, inputs={**data.inputs, **weights})

    def load_function(self, text: str) -> Callable[..., object]:
        """Return a function of the project; one that cannot be loaded raises when it is called."""
        try:
            function = load_attribute(text, (self.root / self.spec.manifest).parent)
        except Exception as error:  # noqa: BLE001 - code of the project runs
            return partial(_raise, f"cannot be loaded: {type(error).__name__}: {error}")
        return function if callable(function) else partial(_raise, "is no function")


def _raise(problem: str, *_: object, **__: object) -> None:
    raise TypeError(problem)


class StructureCheck(Protocol):
    """A check that reads the file and needs no runtime."""

    def __call__(self, context: CheckContext) -> CheckResult:
        """Compare the file with one promise of the contract."""


class RuntimeCheck(Protocol):
    """A check that runs the file, or decides if a run proves anything."""

    @property
    def name(self) -> str:
        """The name in records and in the manifest's `expect`."""

    def applies(self, context: CheckContext) -> bool:
        """Return True if the contract has the promise; otherwise there is no result."""

    def __call__(self, context: CheckContext, session: Session, device: str) -> CheckResult:
        """Compare the outputs of the session with one promise of the contract."""


FindProblems = Callable[[CheckContext, onnx.ModelProto], Iterable[str]]


def run_structure_check(check: str, context: CheckContext, find: FindProblems) -> CheckResult:
    """Return a result that passes if `find` finds no problem in the file."""
    try:
        problems = tuple(find(context, read_model(context.path)))
    except UnreadableModel as error:
        problems = (str(error),)
    return CheckResult(
        check=check,
        status=Status.FAIL if problems else Status.PASS,
        message="; ".join(problems),
    )
