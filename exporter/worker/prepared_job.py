"""A loaded model with PyTorch's outputs: what all files of a job share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from exporter.checks.protocol import CheckedFile, SampleCache
from exporter.jobs import OpsetJob, Reference
from exporter.records.record import Route
from exporter.worker.diagnosis import explanation as diagnosis
from exporter.worker.export.attempts import OpsetExport, list_routes
from exporter.worker.inputs.call import Tensors
from exporter.worker.job_output import JobOutput
from exporter.worker.model.model_kinds import Model
from exporter.worker.process.failure import Failure
from exporter.worker.verify.run_checks import StageTimes


@dataclass(slots=True, kw_only=True)
class PreparedJob:
    """A loaded model with its declared inputs and PyTorch's outputs."""

    output: JobOutput
    model: Model
    inputs: Tensors
    names: Mapping[str, str]
    """The names of weights in the file, by their names in the model."""
    weight_inputs: tuple[str, ...]
    """Weights that are inputs of the file."""
    notes: tuple[str, ...]
    """Overflows in the reference, for each record."""
    reference: Reference
    """The checks of a file add to it: samples of this file, or a review of doubtful ones."""
    samples: SampleCache
    times: StageTimes
    """The stages before the files."""

    def use(self, reference: Reference) -> None:
        """Replace the reference by one with more samples or other outputs."""
        self.reference, self.samples = reference, SampleCache()

    def list_routes(self, opset: OpsetJob) -> tuple[Route, ...]:
        spec = self.output.spec.resolve_cell(opset.opset)
        return list_routes(spec, opset.route, self.model)

    def make_opset_export(self, opset: OpsetJob) -> OpsetExport:
        return OpsetExport(
            model=self.model,
            inputs=self.inputs,
            spec=self.output.spec.resolve_cell(opset.opset),
            job=opset,
            root=self.output.root,
            custom=self.output.custom,
        )

    def make_checked_file(
        self,
        opset_export: OpsetExport,
        notes: tuple[str, ...] = (),
        operators: Mapping[str, int] = MappingProxyType({}),
    ) -> CheckedFile:
        """Return the input of the checks of one opset; the operators are those of its file."""
        return CheckedFile(
            folder=self.output.folder,
            opset=opset_export.opset,
            spec=opset_export.spec,
            reference=self.reference.select(opset_export.route, operators),
            notes=notes,
            samples=self.samples,
            kernels=self.output.custom.kernels,
            root=self.output.root,
        )

    def write_failures(
        self,
        opset_export: OpsetExport,
        opsets: tuple[OpsetJob, ...],
        failure: Failure,
        times: StageTimes,
    ) -> None:
        """Write the records of a failed capture or conversion, and explain them."""
        checked = self.make_checked_file(opset_export)
        explain = partial(diagnosis.explain_failure, failure, opset_export, checked)
        self.output.write_failures(opsets, failure, times, explain)
