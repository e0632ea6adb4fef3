"""The checks of the file of one opset on all its devices, and its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from exporter.checks.files.model_file import measure_artifact
from exporter.checks.files.sample_files import SampleCache
from exporter.checks.protocol import CheckContext
from exporter.jobs import list_groups, write_json
from exporter.records.record import UNPROVED_PREFIX, CellId, Record, Stage
from exporter.worker.diagnose.explanation import diagnosis_seconds, explain_record
from exporter.worker.export.attempts import ExportContext, FileOrigin
from exporter.worker.export.file_samples import add_file_samples
from exporter.worker.inputs.call import Tensors
from exporter.worker.job_output import JobOutput
from exporter.worker.job_steps import Samples
from exporter.worker.model.source_loader import Model
from exporter.worker.reference.review import is_worth_review, review_reference
from exporter.worker.verify.measurement import add_measurements
from exporter.worker.verify.run_checks import (
    REFERENCE,
    FileProver,
    SharedFields,
    StageTimes,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedModel:
    """A loaded model with its declared inputs."""

    model: Model
    inputs: Tensors
    names: Mapping[str, str]
    """The names of weights in the file, by their names in the model."""
    weight_inputs: tuple[str, ...]
    """Weights that are inputs of the file."""
    notes: tuple[str, ...]
    """Overflows in the reference, for each record."""


def make_check_context(
    output: JobOutput,
    context: ExportContext,
    samples: Samples,
    notes: tuple[str, ...] = (),
    operators: Mapping[str, int] = MappingProxyType({}),
) -> CheckContext:
    """Return the input of the checks of one opset; the operators are those of its file."""
    return CheckContext(
        folder=output.folder,
        opset=context.opset,
        spec=context.spec,
        reference=samples.reference.select(context.route, operators),
        notes=notes,
        samples=samples.cache,
        kernels=output.custom.kernels,
        root=output.root,
    )


def limit_diagnosis(output: JobOutput) -> float:
    """Return the seconds for the diagnosis of one cell of the job."""
    return diagnosis_seconds(output.job.spec, len(output.job.cells()))


def check_file(
    output: JobOutput,
    context: ExportContext,
    prepared: PreparedModel,
    samples: Samples,
    times: StageTimes,
    exported: FileOrigin,
) -> Samples:
    """Check the file on all devices; return the samples, with float64 outputs if needed."""
    opset = context.job
    with times.measure(Stage.STRUCTURE):
        facts = measure_artifact(output.folder.model(opset.opset), output.spec.id)
    with times.measure(REFERENCE):
        shared_context = replace(context, spec=output.spec)  # in the state of the other samples
        groups = list_groups(exported.route, facts.operators)
        reference = add_file_samples(
            shared_context, output.folder, samples.reference, exported, groups, output.operators
        )
        samples = replace(samples, reference=reference)
    unproved = [text for name in groups for text in reference.unproved.get(name, ())]
    check_context = make_check_context(output, context, samples, exported.notes, facts.operators)
    output.announce(Stage.STRUCTURE, (opset,))
    shared = SharedFields(
        route=exported.route,
        attempts=exported.attempts,
        log=output.format_log_path(opset.opset),
        notes=(
            *exported.notes,
            *prepared.notes,
            *(f"{UNPROVED_PREFIX}{text}" for text in unproved),
        ),
        artifact=facts,
    )
    with times.measure(Stage.STRUCTURE):
        prover = FileProver(output.spec, check_context, shared)
    for device in opset.devices:
        cell = CellId(model=output.spec.id, opset=opset.opset, device=device.name)
        output.announce(Stage.PARITY, (opset,), only=cell)
        record, device_context = prover.check(device, StageTimes(times))
        if is_worth_review(record, samples.reference):
            with times.measure(REFERENCE):
                samples = _review_samples(output, prepared.model, samples, record)
            prover.context = make_check_context(
                output, context, samples, exported.notes, facts.operators
            )
            record, device_context = prover.check(device, StageTimes(times), is_full=True)
        record = add_measurements(record, context, device_context, device)
        seconds = limit_diagnosis(output)
        output.write_record(explain_record(record, context, device_context, device, seconds))
    return samples


def _review_samples(output: JobOutput, model: Model, samples: Samples, record: Record) -> Samples:
    """Return the samples with all that the verdict on a doubtful file needs."""
    reference = review_reference(
        model, output.spec, output.root, output.folder, samples.reference, record
    )
    write_json(output.folder.reference, reference)
    return Samples(reference, SampleCache())
