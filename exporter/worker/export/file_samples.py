"""Samples for one kind of file: its captured conditions, its traced branches, its operators."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from exporter.jobs import SWEEP, JobFolder, Reference, Sample, write_json
from exporter.records.record import TRACER_PREFIX
from exporter.worker.export.attempts import ExportContext, FileOrigin
from exporter.worker.export.captured_conditions import choose_breaking_sizes, read_conditions
from exporter.worker.export.operator_regions import choose_revealing_draws
from exporter.worker.export.traced_branches import choose_branch_sizes
from exporter.worker.inputs.input_sets import InputSet, create_size_set
from exporter.worker.inputs.thorough_sets import list_sweep
from exporter.worker.reference.reference_run import run_further_sets


@dataclass(slots=True)
class _Choice:
    """The samples of a group, and the promises that no sample proves."""

    sets: list[InputSet] = field(default_factory=list)
    unproved: list[str] = field(default_factory=list)


def add_file_samples(
    context: ExportContext,
    folder: JobFolder,
    reference: Reference,
    exported: FileOrigin,
    groups: Sequence[str],
    operators: Collection[str],
) -> Reference:
    """Run the model on the samples that only some files need, and write the reference.

    Args:
        context: The model, in the state of the other samples.
        folder: The folder of the job.
        reference: The reference with the samples of all files.
        exported: The origin of the file.
        groups: The groups of the file; the result has the samples of all of them.
        operators: PyTorch's operators in the captured program or traced graph.
    """
    for group in groups:
        if group not in reference.captures:
            known = [sample for sample in reference.samples if not sample.captures]
            if group == SWEEP:
                choice = _Choice(list(list_sweep(context.spec, [sample.axes for sample in known])))
            else:
                choice = _choose_capture_sets(context, known, exported, operators)
            reference = _add_group(context, folder, reference, group, choice)
            write_json(folder.reference, reference)
    return reference


def _choose_capture_sets(
    context: ExportContext,
    known: Sequence[Sample],
    exported: FileOrigin,
    operators: Collection[str],
) -> _Choice:
    spec = context.spec
    choice = _Choice()
    if spec.inputs_from is None or spec.inputs_from.takes_sizes:
        used = [sample.axes for sample in known]
        has_branches = any(note.startswith(TRACER_PREFIX) for note in exported.notes)
        sizes: tuple[dict[str, int], ...] = ()
        if exported.captured is not None:
            captured = read_conditions(exported.captured.program, spec)
            sizes, unproved = choose_breaking_sizes(captured, spec, used)
            choice.unproved += unproved
            # The program has one of many values, such as `int(n**0.5) == 2`.
            has_branches = any(" == " in each.text for each in captured.conditions)
        if has_branches:
            further, unproved = choose_branch_sizes(context, (*used, *sizes))
            sizes += further
            choice.unproved += unproved
        choice.sets += [create_size_set(spec, each) for each in sizes]
    draws, hidden = choose_revealing_draws(context, exported.route, operators)
    choice.sets += draws
    choice.unproved += hidden
    return choice


def _add_group(
    context: ExportContext, folder: JobFolder, reference: Reference, group: str, choice: _Choice
) -> Reference:
    names = {chosen.name for chosen in choice.sets}
    others = {sample.name for sample in reference.samples if sample.captures}
    samples = [
        sample.model_copy(update={"captures": (*sample.captures, group)})
        if sample.captures and sample.name in names
        else sample
        for sample in reference.samples
    ]
    missing = [chosen for chosen in choice.sets if chosen.name not in others]
    added = run_further_sets(context.model, context.spec, context.root, folder, missing, reference)
    samples += [sample.model_copy(update={"captures": (group,)}) for sample in added]
    is_complete = len(samples) == len(reference.samples)
    return reference.model_copy(
        update={
            "samples": tuple(samples),
            "captures": (*reference.captures, group),
            "unproved": reference.unproved | {group: tuple(choice.unproved)},
            "is_reviewed": reference.is_reviewed and is_complete,
        }
    )
