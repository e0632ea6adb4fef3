"""The order of the work on one model: what is done once, what per opset, what per device.

In: a `Job`. Out: its files, one record per cell as soon as the cell is done, and before each step
an announcement of the cells that it could take down.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
import torch

from exporter.cache.fingerprint import read_tool_versions
from exporter.checks.files.artifact_facts import measure_artifact
from exporter.checks.files.sample_files import SampleCache
from exporter.checks.protocol import CheckContext
from exporter.jobs.job import Announcement, Job, OpsetJob
from exporter.jobs.job_folder import JobFolder, write_json
from exporter.jobs.reference import Reference, Weight
from exporter.records.record import CellId, Record, Stage
from exporter.worker.dependencies.distributions import list_loaded_packages
from exporter.worker.dependencies.opened_files import OpenedFiles
from exporter.worker.dependencies.source_files import (
    JobStart,
    digest_external_libraries,
    digest_loaded_sources,
)
from exporter.worker.diagnose.explanation import diagnosis_seconds, explain_failure, explain_record
from exporter.worker.export.capture import capture_program
from exporter.worker.export.convert import convert_module, convert_program
from exporter.worker.export.converter_warnings import collect_converter_warnings
from exporter.worker.export.export_context import ExportContext
from exporter.worker.export.exporter_reports import rename_exporter_reports
from exporter.worker.export.parameter_names import (
    describe_named_weights,
    rename_weights,
    resolve_weight_names,
)
from exporter.worker.export.weights_as_inputs import (
    find_read_storages,
    move_weights_to_inputs,
    store_weights,
)
from exporter.worker.export.write_onnx import write_artifact
from exporter.worker.inputs.call import Tensors
from exporter.worker.inputs.input_sets import choose_usual_sets
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.inputs.inputs_from import resolve_inputs_from
from exporter.worker.model.call_objects import wrap_with_call_objects
from exporter.worker.model.custom_ops import NO_CUSTOM_OPS, load_custom_ops
from exporter.worker.model.program_signature import require_matching_inputs
from exporter.worker.model.source_loader import Model, load_model
from exporter.worker.process.failure import Failure
from exporter.worker.process.memory_limit import mark_resource_failures
from exporter.worker.process.output_log import redirect_output
from exporter.worker.reference.eager_run import BufferSnapshot
from exporter.worker.reference.float64 import is_worth_float64, measure_all_samples
from exporter.worker.reference.reference_run import compute_reference, format_overflow_notes
from exporter.worker.torch_private.decompositions import Decompositions
from exporter.worker.torch_private.graph_operators import (
    count_captured_operators,
    count_traced_operators,
)
from exporter.worker.verify.latency import add_latency
from exporter.worker.verify.recheck import recheck
from exporter.worker.verify.run_checks import (
    REFERENCE,
    SharedFields,
    StageTimes,
    check_on_device,
    run_structure_checks,
)

#: Captures and graphs are large, and live as long as the job: by Python's own figures a tenth of
#: the time would go into looking for what of them can go.
_COLLECTING = (100_000, 20, 20)
#: Stages whose work serves all opsets.
_SHARED = (Stage.SOURCE, Stage.CAPTURE)


class JobRunner:
    """One job at work."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._spec = job.spec
        self._root = Path(job.root)
        self._folder = JobFolder(Path(job.folder))
        self._began = JobStart.of(self._folder.job)
        self._shared = StageTimes()
        self._names: dict[str, str] = {}
        self._memory = SampleCache()
        self._whole: Reference | None = None
        self._opened = OpenedFiles(self._root, Path(job.build))
        self._operators: dict[int, dict[str, int]] = {}
        self._patience = diagnosis_seconds(job.spec, len(job.cells()))
        self._custom = NO_CUSTOM_OPS
        self._fed: tuple[Weight, ...] = ()
        self._opsets = job.opsets

    def run(self) -> None:
        """Does the job; a failing model ends as records, never as an exception."""
        self._opsets = tuple(opset for opset in self._job.opsets if not self._recheck(opset))
        if self._opsets:
            with self._opened.watch():
                self._make(self._opsets)

    def _recheck(self, opset: OpsetJob) -> bool:
        """Whether the checks alone settle this opset, on the file that is there."""
        if not opset.reuse_file:
            return False
        self._announce(Stage.PARITY, (opset,))
        records = recheck(self._job, opset, self._memory)
        for record in records or ():
            write_json(self._folder.record(record.cell), record)
        return records is not None

    def _make(self, opsets: tuple[OpsetJob, ...]) -> None:
        try:
            self._announce(Stage.SOURCE, opsets)
            torch.manual_seed(self._spec.seed)  # `inputs_from` may be the first to import the file
            with self._shared.of(Stage.SOURCE):
                self._spec = resolve_inputs_from(self._spec, self._root)
                if self._spec.inputs_from is not None:
                    write_json(self._folder.contract, self._spec)
                model = load_model(self._spec, self._root)
                require_matching_inputs(model, self._spec)
                model = wrap_with_call_objects(model, self._spec, self._root)
                self._custom = load_custom_ops(self._spec, self._root)
                self._names = resolve_weight_names(model, self._spec)
            with self._shared.of(REFERENCE):
                reference = compute_reference(model, self._spec, self._root, self._folder)
                inputs = draw_inputs(self._spec, choose_usual_sets(self._spec)[0], self._root)
                read = find_read_storages(model, self._spec, inputs, self._names)
                weights = describe_named_weights(model, self._names, read)
                self._fed = store_weights(model, self._spec, read, self._names, self._folder)
                update = {"weights": weights, "weight_inputs": self._fed}
                reference = reference.model_copy(update=update)
                write_json(self._folder.reference, reference)
        except Failure as failure:
            for opset in opsets:
                self._fail(opset, failure, self._shared)
            return
        # TorchScript first: its opsets are cheap, and a crash in the capture costs them nothing.
        self._torchscript(model, inputs, reference)
        self._dynamo(model, inputs, reference)

    def _torchscript(self, model: Model, inputs: Tensors, reference: Reference) -> None:
        for opset in self._of("torchscript"):
            self._announce(Stage.CONVERT, (opset,))
            seconds = StageTimes(self._shared)
            state = BufferSnapshot(model)
            scratch = self._folder.path / ".scratch" / f"{opset.opset}.onnx"
            case = self._case(opset, model, inputs)
            try:
                with seconds.of(Stage.CONVERT), self._counting(opset):
                    graph, notes = convert_module(
                        model, case.spec, inputs, opset.opset, scratch, self._custom
                    )
                    self._write(graph, opset)
            except Failure as failure:
                self._fail(opset, explain_failure(failure, case, self._patience), seconds)
            else:
                state.restore()
                self._prove(case, reference, seconds, notes)
            finally:
                state.restore()
                shutil.rmtree(scratch.parent, ignore_errors=True)

    def _dynamo(self, model: Model, inputs: Tensors, reference: Reference) -> None:
        # One capture for all opsets, but for those that an override captures in another way.
        captures: dict[str, list[OpsetJob]] = {}
        for opset in self._of("dynamo"):
            captures.setdefault(opset.route.capture, []).append(opset)
        for opsets in captures.values():
            self._captured(tuple(opsets), model, inputs, reference)

    def _captured(
        self, opsets: tuple[OpsetJob, ...], model: Model, inputs: Tensors, reference: Reference
    ) -> None:
        """Captures once, and makes these opsets of it."""
        self._announce(Stage.CAPTURE, opsets)
        state = BufferSnapshot(model)
        try:
            with self._shared.of(Stage.CAPTURE):
                strict = opsets[0].route.capture == "strict"
                program = capture_program(model, self._spec, inputs, strict=strict)
        except Failure as failure:
            explained = explain_failure(
                failure, self._case(opsets[0], model, inputs), self._patience
            )
            for opset in opsets:
                self._fail(opset, explained, self._shared)
            return
        finally:
            state.restore()
        counts = dict(sorted(count_captured_operators(program).items()))
        self._operators |= {opset.opset: counts for opset in opsets}
        kept = Decompositions()
        # From the highest opset down: what is decomposed for it mostly serves the others too.
        for opset in reversed(opsets):
            self._announce(Stage.CONVERT, (opset,))
            seconds = StageTimes(self._shared)
            case = replace(self._case(opset, model, inputs), program=program, decompositions=kept)
            try:
                with seconds.of(Stage.CONVERT), collect_converter_warnings() as notes:
                    artifacts = self._folder.artifacts(opset.opset)
                    graph = convert_program(
                        program, case.spec, opset.opset, artifacts, kept, self._custom
                    )
                    self._write(graph, opset)
                    notes.extend(rename_exporter_reports(artifacts, self._folder.path))
            except Failure as failure:
                self._fail(opset, explain_failure(failure, case, self._patience), seconds)
            else:
                self._prove(case, reference, seconds, tuple(notes))

    @contextmanager
    def _counting(self, opset: OpsetJob) -> Iterator[None]:
        """What the traced graph is made of goes into the records, also where it is refused."""
        with count_traced_operators() as counts:
            try:
                yield
            finally:
                self._operators[opset.opset] = dict(sorted(counts.items()))

    def _of(self, exporter: str) -> tuple[OpsetJob, ...]:
        return tuple(opset for opset in self._opsets if opset.route.exporter == exporter)

    def _write(self, graph: ir.Model, opset: OpsetJob) -> None:
        tools = read_tool_versions()
        provenance = {
            "model": self._spec.id,
            "fingerprint": self._job.fingerprint.get("entry", ""),
            "route": f"{opset.route.exporter} {opset.route.capture}",
            **{name: tools[name] for name in ("torch", "onnx", "onnxscript", "exporter")},
        }
        rename_weights(graph, self._names)
        spec = self._spec.resolve_cell(opset.opset)
        if spec.weights_are_inputs:
            move_weights_to_inputs(graph, [weight.name for weight in self._fed])
        write_artifact(graph, spec, opset.opset, self._folder, provenance)

    def _case(self, opset: OpsetJob, model: Model, inputs: Tensors) -> ExportContext:
        spec = self._spec.resolve_cell(opset.opset)
        return ExportContext(
            model=model,
            inputs=inputs,
            spec=spec,
            job=opset,
            root=self._root,
            custom=self._custom,
        )

    def _prove(
        self, case: ExportContext, reference: Reference, seconds: StageTimes, notes: tuple[str, ...]
    ) -> None:
        opset = case.job
        subject = CheckContext(
            folder=self._folder,
            opset=opset.opset,
            spec=case.spec,
            reference=self._whole or reference,
            notes=notes,
            samples=self._memory,
            kernels=self._custom.kernels,
        )
        self._announce(Stage.STRUCTURE, (opset,))
        with seconds.of(Stage.STRUCTURE):
            structure = run_structure_checks(subject)
            facts = measure_artifact(subject.path, self._spec.id)
        common = SharedFields(
            route=opset.route,
            log=self._log(opset.opset),
            notes=(*notes, *format_overflow_notes(self._spec, reference)),
            artifact=facts,
        )
        for device in opset.devices:
            cell = CellId(model=self._spec.id, opset=opset.opset, device=device.name)
            self._announce(Stage.PARITY, (opset,), only=cell)
            here = replace(subject, spec=self._spec.resolve_cell(opset.opset, device.name))
            record = check_on_device(device, here, structure, common, StageTimes(seconds))
            if is_worth_float64(record, subject.reference):
                with seconds.of(REFERENCE):
                    subject = self._measured(case.model, subject)
                here = replace(subject, spec=here.spec)
                record = check_on_device(device, here, structure, common, StageTimes(seconds))
            record = add_latency(record, case, here, device)
            self._record(explain_record(record, case, here, device, self._patience))

    def _measured(self, model: Model, subject: CheckContext) -> CheckContext:
        """The subject with float64 outputs for every sample, and all later ones of the job too."""
        self._whole = measure_all_samples(
            model, self._spec, self._root, self._folder, subject.reference
        )
        self._memory = SampleCache()
        write_json(self._folder.reference, self._whole)
        return replace(subject, reference=self._whole, samples=self._memory)

    def _fail(self, opset: OpsetJob, failure: Failure, seconds: StageTimes) -> None:
        for cell in self._job.list_opset_cells(opset):
            self._record(
                Record(
                    cell=cell,
                    status=failure.status,
                    stage=failure.stage,
                    message=failure.message,
                    detail=failure.detail,
                    missing=failure.missing,
                    advice=failure.advice,
                    route=opset.route,
                    log=self._log(None if failure.stage in _SHARED else opset.opset),
                    seconds=dict(seconds),
                )
            )

    def _record(self, record: Record) -> None:
        declared = (*self._spec.data_files, *self._custom.list_project_libraries(self._root))
        names = dict.fromkeys((*declared, *self._opened.names()))
        whole = mark_resource_failures(record, self._spec).model_copy(
            update={
                "fingerprint": self._job.make_fingerprint(record.cell),
                "sources": digest_loaded_sources(self._root, self._began, names),
                "packages": {**list_loaded_packages(), **self._elsewhere()},
                "torch_operators": self._operators.get(record.cell.opset, {}),
            }
        )
        write_json(self._folder.record(record.cell), whole)

    def _elsewhere(self) -> dict[str, str]:
        libraries = self._custom.list_external_libraries(self._root)
        return digest_external_libraries(self._root, self._began, libraries)

    def _announce(
        self, stage: Stage, opsets: tuple[OpsetJob, ...], *, only: CellId | None = None
    ) -> None:
        """Says what comes next, and sends the output of it to the log it belongs to.

        A device's check names its cell alone: the other devices' records of the same file are
        written or still to come.
        """
        cells = tuple(cell for opset in opsets for cell in self._job.list_opset_cells(opset))
        one_opset = None if stage in _SHARED else opsets[0].opset
        redirect_output(self._folder.log(one_opset))
        announcement = Announcement(
            stage=stage,
            cells=(only,) if only is not None else cells,
            log=self._log(one_opset),
            part=self._job.part,
        )
        write_json(self._folder.announcement, announcement)

    def _log(self, opset: int | None) -> str:
        """Where the log will lie once the folder is in place, relative to the build folder."""
        inside = self._folder.log(opset).relative_to(self._folder.path)
        return f"{self._spec.id}/{inside.as_posix()}"


def run_job(job: Job) -> None:
    """Does one job with one thread: as many jobs run at once as there are cores."""
    torch.set_num_threads(1)
    gc.set_threshold(*_COLLECTING)
    JobRunner(job).run()
