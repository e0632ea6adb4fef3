"""Check a written file on each of its devices, and write their records."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from exporter.checks.model_file import measure_artifact
from exporter.checks.protocol import CheckedFile
from exporter.core.check_table import CALLER_CHECK
from exporter.jobs import list_groups, write_json
from exporter.manifest import Device
from exporter.records.record import (
    UNMEASURED_NOTE,
    UNPROVED_PREFIX,
    Artifact,
    CellId,
    Record,
    Stage,
    Status,
)
from exporter.worker.callers.caller_check import check_callers
from exporter.worker.constant_weights import (
    ConstantWeights,
    find_constant_weights,
    prove_hidden_parts,
)
from exporter.worker.diagnosis.explanation import explain_record
from exporter.worker.diagnosis.links import explain_chain
from exporter.worker.export.attempts import ExportedFile, OpsetExport
from exporter.worker.export.file_samples import add_file_samples
from exporter.worker.passes import work as passes
from exporter.worker.prepared_job import PreparedJob
from exporter.worker.process.failure import Failure
from exporter.worker.reference import review
from exporter.worker.verify.measurement import add_measurements
from exporter.worker.verify.run_checks import REFERENCE, FileProof, StageTimes


@dataclass(slots=True)
class FileCheck:
    """The check of one file on all devices of its opset: `run` has the steps in their order."""

    job: PreparedJob
    opset_export: OpsetExport
    exported: ExportedFile
    times: StageTimes
    sources: tuple[Path, ...] = ()
    """The file before each pass."""
    artifact: Artifact = field(init=False)
    proof: FileProof = field(init=False)
    constant: ConstantWeights = field(init=False)

    def run(self) -> None:
        """Make the final file, complete its samples, and write the record of each device."""
        opset = self.opset_export.job
        try:
            self._apply_passes()
        except Failure as failure:
            self.job.output.write_failures((opset,), failure, self.times)
            return
        with self.times.measure(Stage.STRUCTURE):
            self.artifact = measure_artifact(self.job.output.folder.model(opset.opset), self.id)
        with self.times.measure(REFERENCE):
            self._add_samples()
        self.job.output.announce(Stage.STRUCTURE, (opset,))
        with self.times.measure(Stage.STRUCTURE):
            self.constant = find_constant_weights(
                self.job.model,
                # Each link is compared with other values of its own weights.
                () if self.job.output.spec.chain else self.job.reference.constant_weights,
                self.job.output.folder.model(opset.opset),
            )
            self.proof = self._start_proof()
        with self.times.measure(Stage.PARITY):
            output = self.job.output
            self.proof.callers = check_callers(output, self.opset_export.spec, opset.opset)
        records = [self._check_on(device) for device in opset.devices]
        if all(record.status is Status.PASS for record in records) and self.sources:
            passes.remove_sources(self.job.output, opset.opset)

    @property
    def id(self) -> str:
        return self.job.output.spec.id

    def _apply_passes(self) -> None:
        """Replace the exported file by that of the last pass.

        Raises:
            Failure: If a pass fails.
        """
        spec, job = self.opset_export.spec, self.job
        if spec.passes:
            with self.times.measure(Stage.CONVERT):
                self.sources, notes = passes.apply(
                    job.output, spec, self.opset_export.opset, job.reference
                )
            self.exported = replace(self.exported, notes=(*self.exported.notes, *notes))

    def _add_samples(self) -> None:
        """Add samples that only this kind of file needs."""
        job = self.job
        shared = replace(
            self.opset_export, spec=job.output.spec
        )  # in the state of the other samples
        job.reference = add_file_samples(
            shared,
            job.output.folder,
            job.reference,
            self.exported,
            self._groups,
            job.output.operators,
        )

    @property
    def _groups(self) -> tuple[str, ...]:
        return list_groups(self.exported.route, self.artifact.operators)

    def _start_proof(self) -> FileProof:
        output, unproved = self.job.output, self.job.reference.unproved
        texts = [text for group in ("", *self._groups) for text in unproved.get(group, ())]
        texts += self.constant.unproved
        return FileProof(
            spec=output.spec,
            checked=self._select_reference(),
            route=self.exported.route,
            attempts=self.exported.attempts,
            log=output.format_log_path(self.opset_export.opset),
            notes=(
                *self.exported.notes,
                *self.job.notes,
                *(f"{UNPROVED_PREFIX}{text}" for text in texts),
            ),
            artifact=self.artifact,
        )

    def _select_reference(self) -> CheckedFile:
        """Return the file with the samples that apply to it, of the reference as it is now."""
        return self.job.make_checked_file(
            self.opset_export, self.exported.notes, self.artifact.operators
        )

    def _check_on(self, device: Device) -> Record:
        """Prove the file on a device, write the record, and explain it if it is red."""
        output, opset = self.job.output, self.opset_export.job
        cell = CellId(model=self.id, opset=opset.opset, device=device.name)
        output.announce(Stage.PARITY, (opset,), only=cell)
        record = self.proof.prove(device, self.times)
        if review.is_worth_review(record, self.job.reference):
            record = self._review(record, device)
        unmeasured = self.job.reference.unmeasured
        if unmeasured and record.stage is Stage.PARITY and record.status in review.DOUBTFUL:
            notes = (*record.notes, f"{UNMEASURED_NOTE}{unmeasured}")
            record = record.model_copy(update={"notes": notes})
        view = self.proof.view(device)
        if view.spec.measure:
            record = add_measurements(record, self.opset_export, view, device)
        hidden = prove_hidden_parts(record, self.opset_export, view, device, self.constant)
        with hidden as (proved, export, shown):
            written = output.write_record(proved)
            # The check of a caller has searched the reason; the file is right.
            is_explained = written.undiagnosed or written.check == CALLER_CHECK
            if written.status.is_red and not is_explained:
                explain = partial(explain_record, written, export, shown, device)
                if output.spec.chain:
                    explain = partial(explain_chain, written, output.job, export, shown, device)
                if self.sources and proved.status is record.status:
                    explain = partial(
                        passes.explain, written, self.sources, self.proof, self.opset_export, device
                    )
                output.diagnose((written,), explain)
        return written

    def _review(self, record: Record, device: Device) -> Record:
        """Judge the samples of a doubtful verdict by other runs of PyTorch, and prove again."""
        job = self.job
        with self.times.measure(REFERENCE):
            reference = review.review_reference(
                job.model, job.output.spec, job.output.folder, job.reference, record
            )
            write_json(job.output.folder.reference, reference)
            job.use(reference)
        self.proof.checked = self._select_reference()
        return self.proof.prove(device, self.times, is_full=True)
