"""What PyTorch itself says on every input set, and how exact its own float32 is.

In: the model and its contract. Out: test data sets beside the file, and a `Reference`.

The same model runs three ways: twice as declared (does it differ from itself?), with each input
given other values (do the outputs move at all?), and in float64 (how much of the difference is
float32's own?): on a few samples at first, see `exact.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from exporter.checks.files.sample_files import hash_sample, write_sample
from exporter.checks.numerical.determinism import STATEFUL_PREFIX
from exporter.core.resources import is_out_of_resources
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference, Sample
from exporter.manifest import ModelSpec
from exporter.worker.inputs.arrays import to_numpy
from exporter.worker.inputs.call import Tensors
from exporter.worker.inputs.input_sets import InputSet
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.inputs.inputs_from import measure_axes
from exporter.worker.inputs.thorough_sets import choose_all_sets
from exporter.worker.model.call_objects import has_object_outputs, wrap_with_call_objects
from exporter.worker.model.source_loader import Model, load_model
from exporter.worker.process.failure import Failure
from exporter.worker.reference import noise as rounding
from exporter.worker.reference.attribute_changes import AttributeSnapshot
from exporter.worker.reference.eager_run import (
    BufferSnapshot,
    build_float64_model,
    run_declared_inputs,
    run_in_float64,
    run_model,
)
from exporter.worker.reference.float64 import choose_first_samples
from exporter.worker.reference.outputs import Outputs, list_items, to_value
from exporter.worker.reference.weight_tables import digest_tables, list_table_lengths


@dataclass(frozen=True, slots=True)
class _Run:
    """One input set with what PyTorch put out; no outputs where PyTorch failed on it."""

    chosen: InputSet
    inputs: Tensors
    outputs: Outputs | None
    exact: Outputs | None = None
    is_measured: bool = False
    """Whether it was run in float64, be it in vain."""
    error: str = ""
    noise: tuple[float | None, ...] = ()
    """Its own, where its inputs are of another magnitude."""


def compute_reference(model: Model, spec: ModelSpec, root: Path, folder: JobFolder) -> Reference:
    """Runs the model on every input set and writes each one's `test_data_set_<n>`.

    Raises:
        Failure: of stage `source`, where the model does not run on its declared inputs or returns
            other outputs than declared.
    """
    state, attributes = BufferSnapshot(model), AttributeSnapshot(model)
    declared, *others = choose_all_sets(spec, list_table_lengths(model) if spec.thorough else ())
    inputs = draw_inputs(spec, declared, root)
    outputs = run_declared_inputs(model, spec, inputs)
    unstable = _instability(model, spec, inputs, outputs, state)
    runs = [_Run(declared, inputs, outputs)]
    for wanted in others:
        given = draw_inputs(spec, wanted, root)
        chosen = replace(wanted, sizes=measure_axes(spec, wanted, given))
        attempt = _attempt(model, spec, chosen, given)
        state.restore()
        if _says_something(attempt, inputs):
            runs.append(attempt)
    if not unstable and attributes.have_changed():
        unstable = _memory(model, spec, root, runs)
    runs, no_twin = _measured(model, spec, runs)
    for index, done in enumerate(runs):
        _write(folder.sample(index), done, [item.name for item in spec.inputs])
    pairs = [
        (r.outputs, r.exact)
        for r in runs
        if r.outputs is not None and r.is_measured and not r.noise
    ]
    noise, why_not = rounding.compute_noise(pairs)
    # Other magnitudes move any output: that inputs matter has to show at the usual ones.
    moved = [
        r.outputs
        for r in runs
        if r.chosen.kind == "values" and r.outputs is not None and r.chosen.factor == 1.0
    ]
    elsewhere = [
        r.outputs for r in runs if r.chosen.kind in ("axis", "case") and r.outputs is not None
    ]
    return Reference(
        samples=tuple(
            _sample(index, done, folder.sample(index)) for index, done in enumerate(runs)
        ),
        noise=noise,
        float64=no_twin or why_not,
        unstable=unstable,
        overflow=rounding.describe_overflow(pairs),
        output_spread=rounding.compute_spread(outputs, moved, elsewhere),
        thorough=spec.thorough,
        returns_objects=has_object_outputs(model),
        tables=digest_tables(model),
    )


def format_overflow_notes(spec: ModelSpec, reference: Reference) -> tuple[str, ...]:
    """What a reader has to know where the file agrees with PyTorch that a number is too large."""
    pairs = zip(spec.outputs, reference.overflow, strict=True)
    return tuple(f"output '{output.name}': {said}" for output, said in pairs if said)


def _instability(
    model: Model, spec: ModelSpec, inputs: Tensors, outputs: Outputs, state: BufferSnapshot
) -> str:
    """How a second call differs from the first, which just was; empty where it does not.

    A file has no second call: where what a call leaves in the buffers changes the next answer, the
    file can be right about the first one at most. BatchNorm's running figures change none.
    """
    second = rounding.describe_difference(spec, outputs, run_model(model, spec, inputs))
    state.restore()
    if not second:
        return ""
    fresh = rounding.describe_difference(spec, outputs, run_model(model, spec, inputs))
    state.restore()
    return second if fresh else f"{STATEFUL_PREFIX}: {second}"


def _memory(model: Model, spec: ModelSpec, root: Path, runs: list[_Run]) -> str:
    """How a model that was never called answers otherwise; empty where it does not."""
    others = [done for done in runs if done.chosen.kind == "values" and done.outputs is not None]
    if not others or others[0].outputs is None:
        return ""
    fresh = wrap_with_call_objects(load_model(spec, root), spec, root)
    if fresh is model or not _have_same_weights(fresh, model):
        return ""  # there is one model alone, or each that is built is another
    answer = run_model(fresh, spec, others[0].inputs)
    changed = rounding.describe_difference(spec, others[0].outputs, answer)
    return f"it keeps something of its first call in an attribute: {changed}" if changed else ""


def _have_same_weights(one: Model, other: Model) -> bool:
    if not isinstance(one, torch.nn.Module) or not isinstance(other, torch.nn.Module):
        return False
    pairs = zip(one.parameters(), other.parameters(), strict=False)
    return all(torch.equal(first, second) for first, second in pairs)


def _measured(model: Model, spec: ModelSpec, runs: list[_Run]) -> tuple[list[_Run], str]:
    """The runs, some of them in float64 too; and why the model has no twin in it."""
    twin, no_twin = build_float64_model(model)
    runs = [sound for run_model in runs if (sound := _of_its_magnitude(twin, spec, run_model))]
    at = [
        (place, run_model.outputs)
        for place, run_model in enumerate(runs)
        if run_model.outputs is not None and not run_model.noise
    ]
    chosen = choose_first_samples(
        [runs[place].inputs for place, _ in at], [outputs for _, outputs in at]
    )
    for place in (at[index][0] for index in chosen):
        exact = run_in_float64(twin, spec, runs[place].inputs)
        runs[place] = replace(runs[place], exact=exact, is_measured=True)
    return runs, no_twin


def _of_its_magnitude(twin: Model | None, spec: ModelSpec, run_model: _Run) -> _Run | None:
    """A run on inputs of another magnitude with its noise; others as they are.

    Returns:
        None where float64 does not say how exact PyTorch is at it: nothing is promised where
        numbers overflow, or where their rounding is as large as they are.
    """
    if run_model.chosen.factor == 1.0 or run_model.outputs is None:
        return run_model
    exact = run_in_float64(twin, spec, run_model.inputs)
    shares, _ = rounding.compute_noise([(run_model.outputs, exact)])
    numbers = [
        (item, share)
        for output, share in zip(run_model.outputs, shares, strict=True)
        for item in list_items(output)
        if item.is_floating_point()
    ]
    is_sound = all(share is not None and bool(one.isfinite().all()) for one, share in numbers)
    return replace(run_model, exact=exact, is_measured=True, noise=shares) if is_sound else None


def _attempt(model: Model, spec: ModelSpec, chosen: InputSet, inputs: Tensors) -> _Run:
    """PyTorch on one more input set; that it fails there is a finding, not the end.

    Raises:
        Failure: where the machine gave out on values that we chose: a set that is dropped for that
            would make the proof weaker, and nobody would know.
    """
    try:
        outputs = run_model(model, spec, inputs)
    except Failure as failure:
        if chosen.kind == "values" and is_out_of_resources(failure.message):
            raise
        return _Run(chosen, inputs, None, error=failure.message)
    return _Run(chosen, inputs, outputs)


def _says_something(attempt: _Run, declared: Tensors) -> bool:
    """Whether a set belongs to what is promised.

    Values that we chose are dropped where the model refuses them (an index out of range), and
    where there are no others to choose. Sizes and cases stay, whatever PyTorch says: the manifest
    promises them.
    """
    if attempt.chosen.kind != "values":
        return True
    changed = any(not torch.equal(declared[name], attempt.inputs[name]) for name in declared)
    return changed and not attempt.error


def _sample(index: int, done: _Run, folder: Path) -> Sample:
    return Sample(
        index=index,
        name=done.chosen.name,
        kind=done.chosen.kind,
        axes=dict(done.chosen.sizes),
        error=done.error,
        scales=tuple(rounding.compute_scale(output) for output in done.outputs or ()),
        exact=done.is_measured,
        noise=done.noise,
        sha256=hash_sample(folder),
    )


def _write(folder: Path, done: _Run, names: Sequence[str]) -> None:
    write_sample(
        folder,
        [to_numpy(done.inputs[name]) if name in done.inputs else None for name in names],
        [to_value(output) for output in done.outputs or ()],
        [to_value(output) for output in done.exact or ()],
    )
