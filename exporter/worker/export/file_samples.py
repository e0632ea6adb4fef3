"""Samples for one kind of file: its captured conditions, numbers, branches and operators."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import torch

from exporter.jobs import LONG_SWEEP, SWEEP, JobFolder, Reference, Sample, write_json
from exporter.records.record import EQUAL_VALUES, TRACED_BRANCH, TRACED_NUMBERS, TRACER_PREFIX
from exporter.worker.dependencies.source_files import find_frame_line
from exporter.worker.export import model_branches, operator_regions
from exporter.worker.export.attempts import ExportedFile, OpsetExport
from exporter.worker.export.size_quotients import choose_quotient_sizes
from exporter.worker.export.size_terms import choose_breaking_sizes, read_conditions
from exporter.worker.inputs.input_sets import (
    LAST_SIZE,
    InputSet,
    count_elements,
    create_draw_set,
    create_multiples_set,
    create_size_set,
    list_sweep,
)
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.model.call_objects import wrap_with_call_objects
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import BufferSnapshot, count_weights, run_model
from exporter.worker.reference.model_path import ModelPath
from exporter.worker.reference.noise import is_repeatable, read_input_tensors
from exporter.worker.reference.operator_calls import create_mode
from exporter.worker.reference.reference_run import run_further_sets
from exporter.worker.torch_private import internals
from exporter.worker.torch_private.internals import read_schema

# The fork server loads them before it forks.

#: The promises without a sample if the export changed the model and what builds it.
_CHANGED = "other sizes and branches, because the export changed the model"
#: Numbers that get multiples, and numbers that other special values contain.
_MOST_NUMBERS, _USUAL_NUMBERS = 8, (0.0, 0.5, 1.0, 2.0)
_SMALLEST_SHARE = 1e-3
#: Operators with steps whose number torch passes in place of a tensor.
_DIVISIONS = ("aten::floor_divide", "aten::div.Tensor_mode")


def find_input_numbers(opset_export: OpsetExport, sizes: Mapping[str, int]) -> tuple[float, ...]:
    """Return the numbers in the range of the inputs that meet an input before a tensor does.

    A file may compute `x // 0.3` as `floor(x / 0.3)`, which differs at 1.5 only, and a trace keeps
    the branch of `(x == 0.7).any()`.
    """
    inputs = draw_inputs(
        opset_export.spec, create_size_set(opset_export.spec, sizes), opset_export.root
    )
    filled = (each.to(torch.complex128).abs() for each in inputs.values() if each.numel())
    largest = max((float(each.max()) for each in filled), default=0)
    # By address; the tensors stay alive, so no other one gets their memory.
    plain = {each.untyped_storage().data_ptr(): each for each in inputs.values()}
    numbers: dict[float, None] = {}

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        returned = func(*args, **kwargs)
        tensors = [*filter(torch.is_tensor, internals.tree_leaves((args, kwargs)))]
        others = [each for each in tensors if each.untyped_storage().data_ptr() not in plain]
        if len(others) < len(tensors) and all(each.numel() == 1 for each in others):
            for result in filter(torch.is_tensor, internals.tree_leaves(returned)):
                plain[result.untyped_storage().data_ptr()] = result
            schema = read_schema(func)
            name = f"{schema.name}.{schema.overload_name}".removesuffix(".")
            kinds = ("number", "Tensor") if name in _DIVISIONS else ("number",)
            scalars = (
                value
                for each, value in zip(schema.arguments, args, strict=False)
                if str(each.type) in kinds and isinstance(value, int | float)
            )
            numbers.update(dict.fromkeys(abs(float(each)) for each in (*others, *scalars)))
        return returned

    try:
        with BufferSnapshot(opset_export.model), create_mode(run):
            run_model(opset_export.model, opset_export.spec, inputs)
    except Failure:
        return ()
    # A smaller number is no step or threshold of such inputs, but prevents a division by 0.
    possible = (each for each in numbers if _SMALLEST_SHARE * largest <= each <= largest)
    usable = (each for each in possible if each not in _USUAL_NUMBERS)
    return tuple(islice(usable, _MOST_NUMBERS))


def add_file_samples(
    opset_export: OpsetExport,
    job_folder: JobFolder,
    reference: Reference,
    exported: ExportedFile,
    groups: Sequence[str],
    operators: Collection[str],
) -> Reference:
    """Run the model on the samples that only some files need, and write the reference.

    `operators`: PyTorch's operators in the captured program or traced graph.
    """
    missing_groups = [group for group in groups if group not in reference.captures]
    spec, root = opset_export.spec, opset_export.root
    declared = [sample for sample in reference.samples if sample.kind == "declared"]
    if missing_groups and not is_repeatable(opset_export.model, spec, job_folder, declared):
        fresh = wrap_with_call_objects(load_model(spec, root), spec, root)
        if not is_repeatable(fresh, spec, job_folder, declared):
            texts = dict.fromkeys(missing_groups, (_CHANGED,))
            return reference.model_copy(update={"unproved": reference.unproved | texts})
        opset_export = replace(opset_export, model=fresh)
    for group in missing_groups:
        known = [sample for sample in reference.samples if not sample.captures]
        if group in (SWEEP, LONG_SWEEP):
            limits = (LAST_SIZE, count_weights(opset_export.model)) if group == SWEEP else ()
            used = [sample.axes for sample in known]
            sets, unproved = list(list_sweep(spec, used, *limits)), list[str]()
        else:
            sets, unproved = _choose_capture_sets(opset_export, known, exported, operators)
            unproved += _list_equal_values(opset_export, job_folder, known, exported)
        names = {chosen.name for chosen in sets}
        others = {sample.name for sample in reference.samples if sample.captures}
        samples = [
            sample.model_copy(update={"captures": (*sample.captures, group)})
            if sample.captures and sample.name in names
            else sample
            for sample in reference.samples
        ]
        missing = [chosen for chosen in sets if chosen.name not in others]
        added = run_further_sets(opset_export.model, spec, root, job_folder, missing, reference)
        samples += [sample.model_copy(update={"captures": (group,)}) for sample in added]
        is_complete = len(samples) == len(reference.samples)
        reference = reference.model_copy(
            update={
                "samples": tuple(samples),
                "captures": (*reference.captures, group),
                "unproved": reference.unproved | {group: tuple(unproved)},
                "is_reviewed": reference.is_reviewed and is_complete,
            }
        )
        write_json(job_folder.reference, reference)
    return reference


#: Draws that show whether a value changes.
_VALUE_DRAWS = 8
#: Warnings of values that a condition may read, and that are no sizes.
_DRAWN_KINDS = (TRACED_BRANCH, *TRACED_NUMBERS)


def _list_equal_values(
    opset_export: OpsetExport, folder: JobFolder, known: Sequence[Sample], exported: ExportedFile
) -> Iterator[str]:
    """Yield a text for each line whose Python value is in the trace, if no sample proves others.

    The value is equal in all samples, or it differs and all take the same branch, as of
    `if float(x.max()) > 50`. A few draws are tried, too.
    """
    spec = opset_export.spec
    lines = {line for note in exported.notes if (line := _find_value_line(note))}
    if not lines:
        return
    values = dict[str, set[object]]()
    paths: list[ModelPath] = []

    def record(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if str(read_schema(func).name) == "aten::_local_scalar_dense":
            line = find_frame_line(traceback.walk_stack(None), opset_export.root)
            values.setdefault(line, set()).add(result)
        return result

    sound = (each for each in known if not each.error)
    calls = [read_input_tensors(folder.sample(each.index), spec) for each in sound]
    if spec.inputs_from is None:
        draws = (create_draw_set(spec, seed, known[0].axes) for seed in range(_VALUE_DRAWS))
        calls += [draw_inputs(spec, draw, opset_export.root) for draw in draws]
    for inputs in calls:
        with create_mode(record):
            paths.append(model_branches.follow_inputs(opset_export, inputs))
        if lines.isdisjoint(values):
            return  # the line reads a size, which only the trace has as a tensor
    paths = [path for path in paths if not path.has_failed]
    is_one_branch = any(path.has_branch for path in paths[:1])
    is_one_branch = is_one_branch and len({frozenset(path.instructions) for path in paths}) == 1
    yield from (
        f"{EQUAL_VALUES}{line}"
        for line in values
        if line in lines and (len(values[line]) == 1 or is_one_branch)
    )


def _find_value_line(note: str) -> str:
    """Return the line in a warning of the tracer about a Python value, else ""."""
    line, _, text = note.removeprefix(TRACER_PREFIX).partition(": ")
    return line if note.startswith(TRACER_PREFIX) and "to a Python " in text else ""


def _choose_capture_sets(
    opset_export: OpsetExport,
    known: Sequence[Sample],
    exported: ExportedFile,
    operators: Collection[str],
) -> tuple[list[InputSet], list[str]]:
    """Return the sets of a capture or trace, and the promises that no sample proves."""
    spec, captured = opset_export.spec, exported.captured
    sets: list[InputSet] = []
    unproved: list[str] = []
    if spec.inputs_from is None or spec.inputs_from.takes_sizes:
        used = [sample.axes for sample in known]
        warnings = [note for note in exported.notes if note.startswith(TRACER_PREFIX)]
        is_warned = bool(warnings)
        sizes: tuple[dict[str, int], ...] = ()
        if captured is not None:
            conditions = read_conditions(captured.program, spec)
            sizes, texts = choose_breaking_sizes(conditions, spec, used)
            unproved += texts
            # The program has one of many values, such as `int(n**0.5) == 2`.
            is_warned = any(" == " in each.text for each in conditions.conditions)
        draws, further, texts = model_branches.choose_branches(
            opset_export,
            used,
            sizes,
            is_warned=is_warned,
            is_boolean=any(kind in note for note in warnings for kind in _DRAWN_KINDS),
            has_draws=captured is None or exported.route.capture == "draft",
        )
        sets += draws
        sizes += further
        unproved += texts
        sizes += tuple(
            each
            for each in choose_quotient_sizes(opset_export, used, operators)
            if each not in sizes
        )
        sets += [create_size_set(spec, each) for each in sizes]
    # A branch or loop of the graph accepts no dispatch mode, such as `torch.cond`.
    has_graphs = captured is not None and any(captured.program.graph_module.children())
    if spec.inputs_from is None and not has_graphs:
        smallest = min(known, key=lambda sample: count_elements(spec, sample.axes))
        if numbers := find_input_numbers(opset_export, smallest.axes):
            sets.append(create_multiples_set(spec, numbers))
    revealing, hidden = operator_regions.choose_revealing_draws(
        opset_export, exported.route, operators
    )
    return [*sets, *revealing], [*unproved, *hidden]
