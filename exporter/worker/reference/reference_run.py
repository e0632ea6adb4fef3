"""PyTorch's results on every input set, and the precision of its float32.

The model runs twice on the declared inputs, which shows if it is deterministic. It runs on other
values of each input, which shows if the outputs depend on them. It runs in float64 on a few
samples, which measures the rounding of float32 (see `noise.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from exporter.checks.comparison.compare_samples import find_undeclared_outputs
from exporter.checks.protocol import hash_sample, write_sample
from exporter.core.check_table import HISTORY_PREFIX
from exporter.core.text import is_out_of_resources
from exporter.jobs import JobFolder, Reference, Sample
from exporter.manifest import ModelSpec
from exporter.runtimes.session import list_items
from exporter.worker.inputs import inputs_from
from exporter.worker.inputs.call import Tensors, to_numpy
from exporter.worker.inputs.input_sets import InputSet
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.inputs.thorough_sets import choose_all_sets
from exporter.worker.model.call_objects import has_object_outputs, wrap_with_call_objects
from exporter.worker.model.model_kinds import Model
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure
from exporter.worker.process.fork_call import can_fork, compute_in_fork
from exporter.worker.process.setup import use_seed
from exporter.worker.reference import call_failure, quantization_steps
from exporter.worker.reference.eager_run import (
    BufferSnapshot,
    EagerCall,
    Outputs,
    build_float64_model,
    copy_masked_values,
    describe_float64_run,
    hide_masked_values,
    list_measured_sets,
    run_declared_inputs,
    run_in_float64,
    run_model,
    to_value,
)
from exporter.worker.reference.noise import (
    NoiseMeasurement,
    choose_first_samples,
    compute_noise,
    compute_scale,
    compute_spread,
    describe_difference,
    describe_overflow,
    digest_tables,
    has_nan,
    is_rounding,
    limit_noise,
    list_table_lengths,
)
from exporter.worker.reference.python_state import PythonState, call_in_reverse, describe_state

#: Why a fork proves nothing.
_NO_ANSWER = "its process failed or ended early"


@dataclass(frozen=True, slots=True)
class _Run(EagerCall):
    """One input set with PyTorch's outputs, or with its error."""

    exact: Outputs | None = None
    is_measured: bool = False
    """Whether it ran in float64, with or without success."""

    def write(
        self, index: int, folder: Path, spec: ModelSpec, usual: NoiseMeasurement | None = None
    ) -> Sample:
        """Write the test data set and return its description with its noise."""
        noise = None
        scales: tuple[float, ...] = ()
        outputs = hide_masked_values(spec, self.inputs, self.outputs or ())
        if usual is not None and self.outputs is not None:
            measured = _measure_noise(spec, [self]) if self.is_measured else None
            noise = limit_noise(usual, outputs, measured)
        if self.chosen.kind != "masked" and not self.chosen.special:  # they may be much smaller
            scales = tuple(compute_scale(output) for output in outputs)
        write_sample(
            folder,
            [
                to_numpy(self.inputs[item.name]) if item.name in self.inputs else None
                for item in spec.inputs
            ],
            [to_value(output) for output in self.outputs or ()],
            [to_value(output) for output in self.exact or ()],
        )
        return Sample.from_fields(
            self.chosen,
            index=index,
            axes=dict(self.chosen.sizes),
            error=self.error,
            scales=scales,
            exact=self.is_measured,
            noise=noise.shares if noise else (),
            large_noise=noise.large if noise else (),
            undefined=tuple(index for index, each in enumerate(outputs) if has_nan(each))
            if self.chosen.special
            else (),
            sha256=hash_sample(folder),
        )


def compute_reference(
    model: Model, spec: ModelSpec, root: Path, job_folder: JobFolder, other_build: str = ""
) -> Reference:
    """Run the model on every input set and write a `test_data_set_<n>` for each.

    `model`: A loaded model that was not called yet.
    `other_build`: How another build of the model differs, or "".

    Raises:
        Failure: Stage `source`, if the model does not run on its declared inputs, or if it
            returns other outputs than declared on any inputs.
    """
    sets = choose_all_sets(spec, list_table_lengths(model) if spec.thorough else ())
    watch = _StateWatch(model, spec, root, sets)  # before the first call changes the model
    declared = _run_declared_set(model, spec, root, sets[0])
    unstable = watch.compare_first_calls(declared, other_build)
    others = _run_other_sets(model, spec, root, sets, declared, watch.buffers)
    runs = [declared, *others.runs]
    require_declared_shapes(model, spec, runs)
    unstable = unstable or watch.compare_with_new_model(runs) or watch.compare_all_sets_again(runs)
    runs, float64_reason, float64_run = _measure_runs(model, spec, runs)
    usual = [run for run in runs if run.is_measured and run.chosen.factor == 1.0]
    noise = _measure_noise(spec, usual)
    samples = [
        run.write(index, job_folder.sample(index), spec, noise) for index, run in enumerate(runs)
    ]
    return Reference(
        samples=tuple(samples),
        noise=noise.shares,
        noise_scales=noise.scales,
        large_noise=noise.large,
        float64=float64_reason or noise.reason,
        float64_run=float64_run,
        unstable=unstable,
        overflow=describe_overflow(_pair_outputs(spec, usual)),
        output_spread=_measure_spread(spec, declared, runs),
        thorough=spec.thorough,
        returns_objects=has_object_outputs(model),
        steps=quantization_steps.measure_steps(model, spec, declared.inputs),
        tables=digest_tables(model),
        unproved={
            "": (
                *watch.reverse.unproved,
                *watch.unproved,
                *others.unmeasured,
                *_list_unproved_inputs(spec, runs, others.rejected),
            )
        },
    )


class _StateWatch:
    """Whether a call of a model changes the next one: it exists before the first call.

    An exported file keeps no state between calls. If a call changes buffers and these change the
    next outputs, the file can agree with the first call only. The running statistics of BatchNorm
    change no outputs.
    """

    def __init__(self, model: Model, spec: ModelSpec, root: Path, sets: Sequence[InputSet]) -> None:
        self._model = model
        self._spec = spec
        self._root = root
        self._values = PythonState(model)
        self.buffers = BufferSnapshot(model)
        self.reverse = call_in_reverse(model, spec, root, sets)
        self.unproved: list[str] = []
        """The promises for which calls in a fork of this process gave no answer."""

    def compare_first_calls(self, declared: _Run, other_build: str) -> str:
        """Return how the declared call differs from itself in another build, again or later.

        The result is "" if it does not.
        """
        # The difference of the builds may be a buffer that nobody reads or sets.
        if other_build and self._has_other_outputs_in_a_new_build(declared):
            return other_build
        return self._compare_second_call(declared) or self.reverse.describe_change(
            self._spec, declared.outputs or ()
        )

    def _compare_second_call(self, declared: _Run) -> str:
        second = self._call_again(declared)
        if not second:
            return ""
        # The buffers have their first values again: are they the reason?
        if self._call_again(declared):
            values = self._values.list_changes()
            if values and self._changes_with_one_seed(declared):
                return f"{describe_state((), values)}: {second}"
            return second
        return f"{describe_state(tuple(self.buffers.changed), ())}: {second}"

    def _changes_with_one_seed(self, declared: _Run) -> bool:
        """Return whether calls with the same random numbers differ: a value of Python is kept."""
        runs = []
        for _ in range(2):
            with self.buffers, use_seed(self._spec.seed):
                runs.append(run_model(self._model, self._spec, declared.inputs))
        return bool(describe_difference(self._spec, *runs))

    def _call_again(self, declared: _Run) -> str:
        with self.buffers:
            outputs = run_model(self._model, self._spec, declared.inputs)
        return describe_difference(self._spec, declared.outputs or (), outputs)

    def _has_other_outputs_in_a_new_build(self, declared: _Run) -> bool:
        def describe() -> str:
            outputs = run_declared_inputs(self._build_again(), self._spec, declared.inputs)
            return describe_difference(self._spec, declared.outputs or (), outputs)

        difference = compute_in_fork(describe)
        if difference is None:
            self.unproved.append(f"the outputs of another build of the model: {_NO_ANSWER}")
        return bool(difference)

    def compare_with_new_model(self, runs: Sequence[_Run]) -> str:
        """Return the difference of a new model's outputs, if earlier calls may have caused one.

        The calls in reverse order are the proof. This is the substitute if they are impossible.
        """
        if not self.reverse.problem or not self._values.list_changes():
            return ""
        run = next(
            (run for run in runs if run.chosen.kind == "values" and run.outputs is not None), None
        )
        if run is None or run.outputs is None:
            return ""
        fresh = self._build_again()
        weights = zip(fresh.parameters(), self._model.parameters(), strict=False)
        if fresh is self._model or not all(torch.equal(new, old) for new, old in weights):
            return ""  # the source returns one object, or a model with other weights on each call
        outputs = run_model(fresh, self._spec, run.inputs)
        difference = describe_difference(self._spec, run.outputs, outputs)
        return f"{HISTORY_PREFIX}: {difference}" if difference else ""

    def compare_all_sets_again(self, runs: Sequence[_Run]) -> str:
        """Return how the outputs of a set change after other sets, or "" if they do not.

        The declared inputs may not read what another call writes: a cache at position 0, or a state
        that a first call sets. No buffer is restored here, and the sets run twice, so each set runs
        after all others. In another order, a value that cannot be restored is another one.
        """
        buffers, values = tuple(self.buffers.changed), self._values.list_changes()
        if not buffers and not values:
            return ""

        def describe() -> str:
            for run in (*reversed(runs), *reversed(runs)):
                if run.outputs is not None and (text := self._describe_later_call(run)):
                    return f"{text} ({run.chosen.name})"
            return ""

        with self.buffers:
            text = compute_in_fork(describe) if can_fork() else describe()
        if text is None:
            self.unproved.append(f"the same outputs after other calls: {_NO_ANSWER}")
        return f"{describe_state(buffers, values)}: {text}" if text else ""

    def _describe_later_call(self, run: _Run) -> str:
        """Return how a call differs from an earlier one by more than rounding, "" if it does not.

        A table that a longer input has enlarged may have other rounding.
        """
        try:
            outputs = run_model(self._model, self._spec, run.inputs)
        except Failure as failure:
            return f"the model fails after other calls: {failure.message}"
        first = hide_masked_values(self._spec, run.inputs, run.outputs or ())
        later = hide_masked_values(self._spec, run.inputs, outputs)
        difference = describe_difference(self._spec, first, later)
        return difference if difference and not is_rounding(first, later) else ""

    def _build_again(self) -> Model:
        return wrap_with_call_objects(load_model(self._spec, self._root), self._spec, self._root)


def _run_declared_set(model: Model, spec: ModelSpec, root: Path, declared: InputSet) -> _Run:
    inputs = draw_inputs(spec, declared, root)
    try:
        return _Run(declared, inputs, run_declared_inputs(model, spec, inputs))
    except Failure as failure:
        raise call_failure.explain_declared_call(
            failure, model, spec, declared, inputs
        ) from failure


@dataclass(frozen=True, slots=True, kw_only=True)
class _OtherRuns:
    """The runs besides the declared one, and the promises for which there is none."""

    runs: Sequence[_Run]
    rejected: Mapping[str, str]
    """PyTorch's error for other values of an input, by its name."""
    unmeasured: tuple[str, ...]
    """The largest sizes that are too large for each file."""


def _run_other_sets(
    model: Model,
    spec: ModelSpec,
    root: Path,
    sets: Sequence[InputSet],
    declared: _Run,
    buffers: BufferSnapshot,
) -> _OtherRuns:
    """Run all sets but the declared one, each with the first values of the buffers."""
    largest, unmeasured = list_measured_sets(model, spec, root, sets)
    runs, rejected = list[_Run](), dict[str, str]()
    for requested in (*sets[1:], *largest):
        inputs = draw_inputs(spec, requested, root)
        chosen = replace(requested, sizes=inputs_from.measure_axes(spec, requested, inputs))
        with buffers:
            run = _run_set(model, spec, chosen, inputs)
        if _is_promised(run, declared):
            runs.append(run)
        elif run.error and run.chosen.changed_input:
            rejected[run.chosen.changed_input] = run.error
    return _OtherRuns(runs=runs, rejected=rejected, unmeasured=unmeasured)


def _measure_spread(
    spec: ModelSpec, declared: _Run, runs: Sequence[_Run]
) -> tuple[float | None, ...]:
    """Return how much each output depends on values and sizes of the inputs."""
    outputs = declared.outputs or ()

    def list_outputs(chosen: Iterable[_Run]) -> list[Outputs]:
        return [
            copy_masked_values(spec, declared.inputs, outputs, run.inputs, run.outputs)
            for run in chosen
            if run.outputs is not None
        ]

    # Another magnitude changes any output, so only the usual magnitude shows that inputs matter.
    other_values = [
        run
        for run in runs
        if run.chosen.kind == "values"
        and run.chosen.factor == 1.0
        and not (run.chosen.special and any(map(has_nan, run.outputs or ())))
    ]
    other_sizes = [run for run in runs if run.chosen.kind in ("axis", "case")]
    return compute_spread(outputs, list_outputs(other_values), list_outputs(other_sizes))


def _list_unproved_inputs(
    spec: ModelSpec, runs: Sequence[_Run], rejected: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the promises about inputs for which no sample exists.

    `rejected`: PyTorch's error for other values of an input.
    """
    proved = {run.chosen.changed_input for run in runs}
    proved |= {name for case in spec.cases for name in case.fills}
    omitted = {name for case in spec.cases for name in case.absent}
    texts = [
        f"other values of input '{name}': PyTorch rejects those that were tried: {error}"
        for name, error in rejected.items()
        if name not in proved
    ]
    optional = [item.name for item in spec.inputs if item.optional and item.name not in omitted]
    return (*texts, *(f"input '{name}' omitted: no case omits it" for name in optional))


def _measure_noise(spec: ModelSpec, runs: Sequence[_Run]) -> NoiseMeasurement:
    return compute_noise(_pair_outputs(spec, runs))


def _pair_outputs(spec: ModelSpec, runs: Sequence[_Run]) -> list[tuple[Outputs, Outputs | None]]:
    """Return the outputs of each run as declared and in float64, without masked values."""
    return [
        (
            hide_masked_values(spec, run.inputs, run.outputs),
            hide_masked_values(spec, run.inputs, run.exact) if run.exact is not None else None,
        )
        for run in runs
        if run.outputs is not None
    ]


def run_further_sets(
    model: Model,
    spec: ModelSpec,
    root: Path,
    job_folder: JobFolder,
    sets: Sequence[InputSet],
    reference: Reference,
) -> tuple[Sample, ...]:
    """Run the model on further input sets and write a `test_data_set_<n>` for each."""
    buffers = BufferSnapshot(model)
    first = 1 + max(sample.index for sample in reference.samples)  # a review may omit some
    noise = NoiseMeasurement(
        shares=reference.noise, large=reference.large_noise, scales=reference.noise_scales
    )
    samples = []
    for index, chosen in enumerate(sets, first):
        with buffers:
            run = _run_set(model, spec, chosen, draw_inputs(spec, chosen, root))
        if not (run.error and chosen.special):
            samples.append(run.write(index, job_folder.sample(index), spec, noise))
    return tuple(samples)


def _is_promised(run: _Run, declared: _Run) -> bool:
    """Return True if the manifest promises the result of a run, even if PyTorch fails.

    It promises all sizes and cases. Other values count only if they differ, and if the model
    accepts them: an index may be out of range.
    """
    if run.chosen.kind not in ("values", "masked"):
        return True
    items = [item for output in run.outputs or () for item in list_items(output)]
    if run.error or (run.chosen.special and all(bool(item.isnan().all()) for item in items)):
        return False
    return any(not torch.equal(declared.inputs[name], run.inputs[name]) for name in declared.inputs)


def format_reference_notes(spec: ModelSpec, reference: Reference) -> tuple[str, ...]:
    """Return notes about float64 of a large model, and about outputs that overflow in PyTorch."""
    pairs = zip(spec.outputs, reference.overflow, strict=True)
    overflows = tuple(f"output '{output.name}': {text}" for output, text in pairs if text)
    if not reference.float64_run:
        return overflows
    exact = sum(sample.exact for sample in reference.samples)
    text = f"{exact} of {len(reference.samples)} samples ran first {reference.float64_run}"
    return (f"float64: {text}", *overflows)


def _measure_runs(model: Model, spec: ModelSpec, runs: list[_Run]) -> tuple[list[_Run], str, str]:
    """Return the runs, some with float64 outputs, the reason if float64 is impossible, and how."""
    float64_model, reason = build_float64_model(model)
    sound = (_measure_magnitude(float64_model, spec, run) for run in runs)
    measured = [run for run in sound if run is not None]
    candidates = [
        (index, run.inputs, run.outputs)
        for index, run in enumerate(measured)
        if run.outputs is not None
        and run.chosen.factor == 1.0
        and run.chosen.kind != "masked"
        and not run.chosen.special  # a logarithm of 0 would measure no rounding
    ]
    chosen = choose_first_samples(
        [inputs for _, inputs, _ in candidates], [outputs for _, _, outputs in candidates]
    )
    for index in (candidates[position][0] for position in chosen):
        exact = run_in_float64(float64_model, spec, measured[index].inputs)
        measured[index] = replace(measured[index], exact=exact, is_measured=True)
    return measured, reason, describe_float64_run(model, float64_model)


def _measure_magnitude(float64_model: Model | None, spec: ModelSpec, run: _Run) -> _Run | None:
    """Return a run on inputs of another magnitude in float64, and other runs unchanged.

    Returns:
        None if float64 shows no precision at this magnitude. The manifest promises nothing if
        numbers overflow, or if their rounding is as large as the numbers.
    """
    if run.chosen.factor == 1.0 or run.outputs is None:
        return run
    exact = run_in_float64(float64_model, spec, run.inputs)
    outputs = hide_masked_values(spec, run.inputs, run.outputs)
    hidden = hide_masked_values(spec, run.inputs, exact) if exact is not None else None
    shares = compute_noise([(outputs, hidden)]).shares
    floats = [
        (item, share)
        for output, share in zip(outputs, shares, strict=True)
        for item in list_items(output)
        if item.is_floating_point()
    ]
    is_sound = all(share is not None and bool(item.isfinite().all()) for item, share in floats)
    return replace(run, exact=exact, is_measured=True) if is_sound else None


def _run_set(model: Model, spec: ModelSpec, chosen: InputSet, inputs: Tensors) -> _Run:
    """Return the run of PyTorch on one more input set, with its error if it fails.

    Raises:
        Failure: If resources are exhausted on values that this package chose: the proof would
            be weaker without a message.
    """
    try:
        outputs = run_model(model, spec, inputs)
    except Failure as failure:
        if chosen.kind in ("values", "masked") and is_out_of_resources(failure.message):
            raise
        error = call_failure.describe_failed_call(failure, model, spec, chosen, inputs)
        return _Run(chosen, inputs, None, error=error)
    return _Run(chosen, inputs, outputs)


def require_declared_shapes(model: Model, spec: ModelSpec, calls: Sequence[EagerCall]) -> None:
    """Compare the shapes and dtypes of PyTorch's own outputs with the contract.

    No file can keep a promise that PyTorch breaks, so nothing is exported.

    Raises:
        Failure: Stage `source`, if an output differs. Its message is about the first call that
            breaks the contract, which may be one that PyTorch rejects.
    """
    problems: list[list[str]] = [[] for _ in calls]
    for texts, call in zip(problems, calls, strict=True):
        if call.outputs is not None:
            values = [to_value(output) for output in call.outputs]
            texts.extend(find_undeclared_outputs(spec.outputs, values, call.chosen.sizes))
    if not any(problems):
        return
    raise call_failure.explain_shapes(model, spec, calls, problems)
