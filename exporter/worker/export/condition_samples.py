"""Samples with sizes that break the conditions of a captured program."""

from __future__ import annotations

from exporter.jobs.job_folder import JobFolder, write_json
from exporter.jobs.reference import Reference, name_capture
from exporter.worker.export.attempts import FileOrigin
from exporter.worker.export.captured_conditions import choose_breaking_sizes, read_conditions
from exporter.worker.export.export_context import ExportContext
from exporter.worker.inputs.input_sets import create_size_set
from exporter.worker.reference.reference_run import run_further_sets


def add_condition_samples(
    context: ExportContext, folder: JobFolder, reference: Reference, exported: FileOrigin
) -> Reference:
    """Run the model at the sizes that break conditions, and write the reference.

    Returns:
        The same reference if there is no program, or if its samples exist.
    """
    spec, capture = context.spec, name_capture(exported.route)
    if exported.captured is None or capture in reference.captures:
        return reference
    samples = list(reference.samples)
    if spec.inputs_from is None or spec.inputs_from.takes_sizes:
        conditions = read_conditions(exported.captured.program, spec)
        known = [sample.axes for sample in samples if not sample.captures]
        sets = [
            create_size_set(spec, each) for each in choose_breaking_sizes(conditions, spec, known)
        ]
        names = {chosen.name for chosen in sets}
        others = {sample.name for sample in samples if sample.captures}
        samples = [
            sample.model_copy(update={"captures": (*sample.captures, capture)})
            if sample.captures and sample.name in names
            else sample
            for sample in samples
        ]
        missing = [chosen for chosen in sets if chosen.name not in others]
        first = 1 + max(sample.index for sample in samples)  # a review may omit some
        added = run_further_sets(context.model, spec, context.root, folder, missing, first)
        samples += [sample.model_copy(update={"captures": (capture,)}) for sample in added]
    is_complete = len(samples) == len(reference.samples)
    update = {
        "samples": tuple(samples),
        "captures": (*reference.captures, capture),
        "is_reviewed": reference.is_reviewed and is_complete,
    }
    reference = reference.model_copy(update=update)
    write_json(folder.reference, reference)
    return reference
