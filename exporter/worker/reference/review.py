"""Review a reference when a file differs from it: can rounding or equal values explain that?

These runs are slow, and a file that passes does not need them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from exporter.checks.protocol import (
    SelectionData,
    hash_sample,
    read_outputs,
    read_sample,
    write_float64_outputs,
    write_rounded_outputs,
    write_ties,
)
from exporter.checks.reference_choices import find_choices, make_selection
from exporter.jobs import LONG_SWEEP, SWEEP, JobFolder, Reference, Sample
from exporter.manifest import ModelSpec
from exporter.records.record import CheckResult, Record, Stage, Status
from exporter.worker.inputs.call import Tensors, to_numpy
from exporter.worker.model.model_kinds import Model
from exporter.worker.model.onnx_model import OnnxModel
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import (
    BufferSnapshot,
    Outputs,
    build_float64_model,
    from_value,
    hide_masked_values,
    run_in_float64,
    run_model,
    to_value,
)
from exporter.worker.reference.noise import (
    NoiseMeasurement,
    compute_noise,
    compute_scale,
    describe_overflow,
    is_repeatable,
    is_rounding,
    merge_noise,
    read_call,
    read_input_tensors,
    widen_output,
)
from exporter.worker.reference.operator_calls import create_mode
from exporter.worker.reference.rounding_runs import (
    PLAIN_OPERATORS,
    QUANTIZING,
    STEPS,
    compute_plainly,
    count_terms,
    round_differently,
)
from exporter.worker.torch_private import internals
from exporter.worker.torch_private.internals import read_schema

#: Elements of the largest tensor whose selections are recorded: 32 MB of float64.
_LARGEST = 1 << 22
#: Operators that move or copy elements; the others start from a new tensor.
_COPIES = frozenset({"aten::clone", "aten::_to_copy", "aten::contiguous", "aten::_unsafe_view"})
_CASTS = frozenset({"aten::_to_copy"})
#: What identifies a tensor: PyTorch may return views as other objects.
_Key = tuple[int, int, tuple[int, ...], tuple[int, ...], torch.dtype]


@dataclass(frozen=True, slots=True)
class IndexSelection:
    """Indices with the values that they select from.

    PyTorch promises no order of equal values for `topk` and `sort`. ONNX selects the lower index
    first. So a run that selects as ONNX does (`SelectionRecorder`) gives one for each output that
    consists of indices.
    """

    keys: torch.Tensor
    """The values in rows: an index selects one of its row."""
    rows: torch.Tensor
    """The row of each index, in the shape of the indices."""
    indices: torch.Tensor
    is_first_promised: bool
    """Whether PyTorch promises the first of equal values."""


@dataclass(slots=True)
class SelectionRecorder:
    """The selections of one run of a model."""

    keys: list[torch.Tensor] = field(default_factory=list)
    """The values of each selecting operator, in the order of the run."""
    _selections: dict[_Key, tuple[torch.Tensor, int, IndexSelection]] = field(default_factory=dict)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Record the selections inside, with the lower index first among equal values."""
        with create_mode(self._run):
            yield

    def find(self, output: torch.Tensor) -> tuple[int, IndexSelection] | None:
        """Return the number of the operator and the selection of an output, if it has one."""
        recorded = self._selections.get(_identify(output))
        # A write in place changes the values, and not the tensor.
        if recorded is None or not torch.equal(recorded[2].indices, output):
            return None
        return recorded[1], recorded[2]

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        schema = read_schema(func)
        name = str(schema.name)
        overload = f"{name}.{schema.overload_name}" if schema.overload_name else name
        select = SELECTING_OPERATORS.get(overload)
        if select is not None:
            values, dim, is_first_promised, result = select(func, *args, **kwargs)
            self._record(result, values, dim, is_first_promised)
            return result
        result = func(*args, **kwargs)
        is_view = any(item.alias_info and not item.alias_info.is_write for item in schema.returns)
        if args and (is_view or name in _COPIES) and isinstance(args[0], torch.Tensor):
            self._follow(func, name, args, kwargs, result)
        return result

    def _record(self, result: Any, values: torch.Tensor, dim: int | None, is_first: bool) -> None:
        indices = result if isinstance(result, torch.Tensor) else result[1]
        if values.numel() > _LARGEST or indices.numel() > _LARGEST or not indices.numel():
            return
        if dim is None or not values.ndim:
            keys, rows = values.reshape(1, -1), torch.zeros_like(indices)
        else:
            moved = values.movedim(dim, -1)
            keys = moved.reshape(-1, moved.shape[-1])
            rows = torch.arange(len(keys), device=values.device).reshape(moved.shape[:-1])
            if indices.ndim == values.ndim:
                rows = rows.unsqueeze(dim).expand_as(indices)
        rows = _copy_like(rows, indices)
        self.keys.append(keys.clone())
        self._store(
            indices, len(self.keys) - 1, IndexSelection(keys, rows, indices.clone(), is_first)
        )

    def _follow(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Record moved or copied indices."""
        choice = self.find(args[0])
        if choice is None:
            return
        number, source = choice
        if name in _CASTS:
            moved = _copy_like(source.rows, result)
        else:
            moved = func(source.rows, *args[1:], **kwargs)
        pairs = zip(result, moved, strict=True) if isinstance(result, list | tuple) else None
        for tensor, rows in pairs or ((result, moved),):
            selection = IndexSelection(source.keys, rows, tensor.clone(), source.is_first_promised)
            self._store(tensor, number, selection)

    def _store(self, indices: torch.Tensor, number: int, selection: IndexSelection) -> None:
        # The tensor stays alive, so no other one gets its memory.
        self._selections[_identify(indices)] = (indices, number, selection)


def _copy_like(rows: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Return the rows with the strides of the indices, so that the same views are possible."""
    return torch.empty_like(indices, dtype=torch.int64).copy_(rows)


def _identify(tensor: torch.Tensor) -> _Key:
    storage = tensor.untyped_storage().data_ptr()
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return storage, int(tensor.storage_offset()), shape, strides, tensor.dtype


#: The values, the axis, whether the first of equal values is promised, and the result.
_Choice = tuple[torch.Tensor, "int | None", bool, Any]


def _select_best(
    func: Any, values: torch.Tensor, dim: Any = None, keepdim: bool = False
) -> _Choice:
    return values, dim, True, func(values, dim, keepdim)


def _sort(_func: Any, values: torch.Tensor, dim: int = -1, descending: bool = False) -> _Choice:
    result = torch.sort(values, dim=dim, descending=descending, stable=True)
    return values, dim, False, tuple(result)


def _sort_stably(
    _func: Any,
    values: torch.Tensor,
    *,
    stable: bool | None = None,
    dim: int = -1,
    descending: bool = False,
) -> _Choice:
    result = torch.sort(values, dim=dim, descending=descending, stable=True)
    return values, dim, bool(stable), tuple(result)


def _select_top(func: Any, values: torch.Tensor, k: int, dim: int = -1, *order: bool) -> _Choice:
    if not values.ndim:
        return values, None, False, func(values, k, dim, *order)
    result = torch.sort(values, dim=dim, descending=order[0] if order else True, stable=True)
    return values, dim, False, tuple(part.narrow(dim, 0, k).contiguous() for part in result)


SELECTING_OPERATORS: dict[str, Callable[..., _Choice]] = {
    "aten::argmax": _select_best,
    "aten::argmin": _select_best,
    "aten::max.dim": _select_best,
    "aten::min.dim": _select_best,
    "aten::sort": _sort,
    "aten::sort.stable": _sort_stably,
    "aten::topk": _select_top,
}


_SELECTING = frozenset(name.split(".")[0] for name in SELECTING_OPERATORS)
#: The prefix of operators that quantize their results inside.
_QUANTIZED = "quantized::"
#: The noise of plain float32 follows the terms of sums if it is larger than usual by this factor.
_PLAIN_FACTOR = 2.0
#: The larger of two errors of plain float32 was small by luck by less than this factor.
_LUCK = 2.0
#: Runs with other rounding. Each row of a batch needs one with the choice of the file.
_ROUNDINGS, _CHOICES = 8, 24
#: What the runs of a review after the first choice of each sample may cost: about 50 seconds.
_MOST_COST = 1 << 29
#: Terms of sums that take as long as the other rounding of an element.
_TERMS = 128
#: PyTorch's error for special values, as a share of the larger usual scale. The usual one is 1e-6.
_LARGEST_SPECIAL_NOISE = 1.5e-4
#: Statuses of a file with other values than PyTorch's.
DOUBTFUL = (Status.FAIL, Status.INCONCLUSIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reviewer:
    """The model of a job with its stored samples."""

    model: Model
    spec: ModelSpec
    folder: JobFolder

    def run(self, inputs: Tensors, mode: AbstractContextManager[object]) -> Outputs | None:
        """Return PyTorch's outputs inside a context; None if the model does not run there."""
        try:
            with BufferSnapshot(self.model), mode:
                return run_model(self.model, self.spec, inputs)
        except Failure:
            return None

    def are_near(
        self,
        inputs: Tensors,
        outputs: Outputs,
        others: Outputs,
        usual_scales: Sequence[float] = (),
    ) -> bool:
        """Return whether outputs differ by no more than rounding at the compared positions."""
        pair = [hide_masked_values(self.spec, inputs, each) for each in (outputs, others)]
        return is_rounding(pair[0], pair[1], usual_scales)

    def read_outputs(self, sample: Sample) -> Outputs:
        """Return the stored outputs of a sample."""
        values = read_outputs(self.folder.sample(sample.index), self.spec)
        return tuple(map(from_value, values))

    def list_samples(self, reference: Reference) -> Iterator[tuple[Sample, Tensors]]:
        """Yield each sample that PyTorch runs on, with its inputs."""
        for sample in reference.samples:
            if not sample.error:
                path = self.folder.sample(sample.index)
                yield sample, read_input_tensors(path, self.spec)


def is_worth_review(record: Record, reference: Reference) -> bool:
    """Return True if a review may change the verdict: the file runs and its values differ."""
    is_red = record.status in DOUBTFUL and record.stage is Stage.PARITY
    failed = _list_failed_checks(record)
    # A check that compares no values has no figure.
    is_compared = bool(failed) and all("of_limit" in result.metrics for result in failed)
    return is_red and is_compared and not reference.is_reviewed


def _list_failed_checks(record: Record) -> list[CheckResult]:
    doubtful = [result for result in record.checks if result.status in DOUBTFUL]
    # `power` is about the outputs of PyTorch, not about a file that may be right.
    return [one for one in doubtful if one.status is Status.FAIL or "of_limit" in one.metrics]


def review_reference(
    model: Model,
    spec: ModelSpec,
    job_folder: JobFolder,
    reference: Reference,
    record: Record,
) -> Reference:
    """Return the reference with all that a doubtful file needs; write it next to the samples."""
    reviewer = _Reviewer(model=model, spec=spec, folder=job_folder)
    if not is_repeatable(model, spec, job_folder, reference.samples):
        return reference.model_copy(update={"is_reviewed": True})
    names = _list_operators(reviewer, reference)
    reference = _review_special_samples(reviewer, reference, names)
    failed = _list_failed_checks(record)
    excess = [result.metrics["of_limit"] for result in failed]
    has_selections = bool(names & _SELECTING)
    # The error is infinite if types, shapes or indices differ, and only other indices may be right.
    is_numeric = all(isinstance(one, float) and math.isfinite(one) for one in excess)
    if is_numeric or has_selections:
        if not reference.is_measured_everywhere:
            reference = measure_all_samples(model, spec, job_folder, reference)
        if all(share is None for share in (*reference.noise, *reference.large_noise)):
            reference = _estimate_noise(reviewer, reference)
        if names & PLAIN_OPERATORS:
            reference = _add_plain_noise(reviewer, reference)
    if has_selections:
        reference = _add_selections(reviewer, reference)
    if has_selections or names & STEPS:
        reference = _add_rounded_outputs(reviewer, reference)
    if isinstance(model, OnnxModel):
        reference = _add_file_choices(model, reviewer, reference)
    return reference.model_copy(update={"is_reviewed": True})


def measure_all_samples(
    model: Model, spec: ModelSpec, job_folder: JobFolder, reference: Reference
) -> Reference:
    """Return the reference with float64 outputs and their noise for every sample that runs."""
    float64_model, reason = build_float64_model(model)
    pairs: list[tuple[Outputs, Outputs | None]] = []
    samples: list[Sample] = []
    usual = next((each.scales for each in reference.samples if each.kind == "declared"), ())
    for sample in reference.samples:
        if sample.error or sample.factor != 1.0 or sample.kind == "masked":
            samples.append(sample)
            continue
        path = job_folder.sample(sample.index)
        inputs, outputs = read_call(path, spec)
        exact = run_in_float64(float64_model, spec, inputs)
        write_float64_outputs(path, [to_value(output) for output in exact or ()])
        hidden = hide_masked_values(spec, inputs, exact) if exact is not None else None
        pairs.append((hide_masked_values(spec, inputs, outputs), hidden))
        noise = compute_noise(pairs[-1:], () if sample.scales else usual)
        measured = _add_noise(sample, reference, noise)
        samples.append(measured.model_copy(update={"exact": True, "sha256": hash_sample(path)}))
    return reference.model_copy(
        update={
            "samples": tuple(samples),
            "overflow": describe_overflow(pairs),
            "float64": reason or reference.float64,
        }
    )


def _estimate_noise(reviewer: _Reviewer, reference: Reference) -> Reference:
    """Return the reference with the noise of outputs that have no float64.

    A saved program has its dtypes in its graph. Other rounding of each operator shows the error.
    """
    samples = {sample.index: sample for sample in reference.samples}
    pairs: list[tuple[Outputs, Outputs | None]] = []
    tried = [
        (sample, inputs)
        for sample, inputs in reviewer.list_samples(reference)
        if sample.factor == 1.0 and sample.kind != "masked"
    ]
    # The most different ones first: each sample has at least one run.
    modes = [partial(round_differently, 0)]
    modes += [partial(compute_plainly, is_reversed=each) for each in (False, True)]
    modes += [partial(round_differently, seed) for seed in range(1, _ROUNDINGS)]
    budget, omitted = float(_MOST_COST), 0
    for number, (sample, inputs) in enumerate(tried):
        outputs = reviewer.read_outputs(sample)
        hidden = hide_masked_values(reviewer.spec, inputs, outputs)
        usual = tuple(widen_output(each) for each in hidden)
        cost = _RunCost()
        reviewer.run(inputs, create_mode(cost.add))
        part = budget / (len(tried) - number)
        others: list[Outputs | None] = []
        for create in modes:
            if others and part < cost.elements:
                omitted += len(modes) - len(others)
                break
            part -= cost.elements
            budget -= cost.elements
            others.append(reviewer.run(inputs, create()))
        runs: list[tuple[Outputs, Outputs | None]] = [
            (hide_masked_values(reviewer.spec, inputs, each), usual)
            for each in others
            if each is not None
        ]
        if not runs:
            return reference
        measured = compute_noise(runs)
        if not sample.special:
            pairs += runs
        update = {"noise": measured.shares, "large_noise": measured.large, "exact": False}
        samples[sample.index] = sample.model_copy(update=update)
    noise = compute_noise(pairs)
    return reference.model_copy(
        update={
            "samples": tuple(samples.values()),
            "noise": noise.shares,
            "large_noise": noise.large,
            "noise_scales": noise.scales,
            "unmeasured": _format_omitted(omitted, len(tried) * len(modes)),
        }
    )


def _format_omitted(omitted: int, count: int) -> str:
    if not omitted:
        return ""
    return f"{omitted} of {count} runs with other rounding, because they are slow"


def _add_noise(sample: Sample, reference: Reference, measured: NoiseMeasurement) -> Sample:
    """Return the sample with its own noise, if it is larger than the usual one."""
    nothing = (None,) * len(reference.noise)
    known = NoiseMeasurement(
        shares=sample.noise or reference.noise,
        large=sample.large_noise or reference.large_noise or nothing,
        scales=measured.scales,
    )
    noise = merge_noise(known, measured)
    return sample.model_copy(update={"noise": noise.shares, "large_noise": noise.large})


def _review_special_samples(
    reviewer: _Reviewer, reference: Reference, names: AbstractSet[str]
) -> Reference:
    """Return the reference without the special samples at which PyTorch itself is not stable.

    Equal inputs give equal scores, and rounding decides which of them a model selects. Special
    values lie in the middle of two steps of a quantized model, and rounding selects the step, as in
    some of the many elements of a sweep. The others get the noise of a different rounding, because
    a normalization of equal values enlarges it.
    """
    has_steps = bool(names & QUANTIZING)
    has_hidden_steps = any(name.startswith(_QUANTIZED) for name in names)
    float64_model, _ = build_float64_model(reviewer.model)
    usual = next((each.scales for each in reference.samples if each.kind == "declared"), ())
    samples = {sample.index: sample for sample in reference.samples}
    for sample, inputs in reviewer.list_samples(reference):
        is_swept = not {SWEEP, LONG_SWEEP}.isdisjoint(sample.captures)
        if (sample.special or is_swept) and has_hidden_steps:
            del samples[sample.index]
        elif sample.special in ("constant", "rising") or (sample.special and has_steps):
            outputs = reviewer.read_outputs(sample)
            exact = run_in_float64(float64_model, reviewer.spec, inputs)
            # Without a signal, such as equal values less their mean, the output is rounding.
            has_signal = all(
                compute_scale(each) or not compute_scale(plain)
                for each, plain in zip(exact or (), outputs, strict=False)
            )
            others: list[Outputs] = []
            is_stable = has_signal
            modes = [partial(round_differently, seed) for seed in range(_ROUNDINGS)]
            for create in (None, *modes, compute_plainly):
                if not is_stable:
                    break
                run = reviewer.run(inputs, create()) if create else exact
                if run is not None:
                    is_stable = reviewer.are_near(inputs, outputs, run, usual)
                    others += [run] if create else []
            if not is_stable:
                del samples[sample.index]
                continue
            if exact is None or not others:  # torch.cond accepts no dispatch mode
                continue
            wide = hide_masked_values(reviewer.spec, inputs, exact)
            pairs = [(hide_masked_values(reviewer.spec, inputs, each), wide) for each in others]
            noise = compute_noise(pairs, usual)
            if _is_mostly_rounding(noise, usual):
                del samples[sample.index]
            else:
                samples[sample.index] = _add_noise(sample, reference, noise)
    return reference.model_copy(update={"samples": tuple(samples.values())})


def _is_mostly_rounding(noise: NoiseMeasurement, usual: Sequence[float]) -> bool:
    """Return whether an output has so much noise that it shows nothing about the file."""
    columns = zip(noise.shares, noise.scales, usual, strict=False)
    return any(
        (share or 0.0) * scale > _LARGEST_SPECIAL_NOISE * max(scale, usual_scale)
        for share, scale, usual_scale in columns
    )


def _list_operators(reviewer: _Reviewer, reference: Reference) -> set[str]:
    """Return the operators of a run on the declared inputs."""
    _, inputs = next(reviewer.list_samples(reference))
    names: set[str] = set()

    def record(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names.add(str(read_schema(func).name))
        return func(*args, **kwargs)

    reviewer.run(inputs, create_mode(record))
    return names


def _add_plain_noise(reviewer: _Reviewer, reference: Reference) -> Reference:
    """Return the reference with the larger noise of plain float32, if it is rounding."""
    samples = [_add_plain_noise_of(reviewer, reference, each) for each in reference.samples]
    # The steps of a loop have no other review.
    steps = [_add_plain_noise_of(reviewer, reference, each) for each in reference.rollout]
    has_plain_noise = any(
        (share or 0.0) > _PLAIN_FACTOR * (usual or 0.0)
        for before, after in zip(reference.samples, samples, strict=True)
        for share, usual in zip(after.noise, before.noise, strict=False)
    )
    update = {
        "samples": tuple(samples),
        "rollout": tuple(steps),
        "has_plain_noise": has_plain_noise,
    }
    return reference.model_copy(update=update)


def _add_plain_noise_of(reviewer: _Reviewer, reference: Reference, sample: Sample) -> Sample:
    """Return the sample with the larger noise of plain float32, if it ran in float64."""
    if sample.error:
        return sample
    data = read_sample(reviewer.folder.locate(sample), reviewer.spec)
    if any(one is None for one in data.float64_outputs):
        return sample
    inputs, _ = read_call(reviewer.folder.locate(sample), reviewer.spec)
    exact = tuple(from_value(one) for one in data.float64_outputs if one is not None)
    # A statistic is one number for many elements, so two runs may have a small error by luck.
    for is_reversed in (False, True):
        plain = reviewer.run(inputs, compute_plainly(is_reversed=is_reversed))
        if plain is None:
            continue
        hidden = [hide_masked_values(reviewer.spec, inputs, each) for each in (plain, exact)]
        measured = compute_noise([(hidden[0], hidden[1])])
        pairs = zip(measured.shares, reference.noise, strict=True)
        # A large one is no rounding.
        shares = tuple(_allow_luck(share or 0.0, usual or 0.0) for share, usual in pairs)
        measured = replace(measured, shares=shares, large=(None,) * len(shares))
        sample = _add_noise(sample, reference, measured)
    return sample


def _allow_luck(share: float, usual: float) -> float:
    """Return the noise of plain float32, larger if long sums make it larger than PyTorch's."""
    return share * _LUCK if share > _PLAIN_FACTOR * usual else share


def _add_selections(reviewer: _Reviewer, reference: Reference) -> Reference:
    """Write the outputs with ties in ONNX's order, and the values that indices select from."""
    float64_model, _ = build_float64_model(reviewer.model)
    samples = {sample.index: sample for sample in reference.samples}
    for sample, inputs in reviewer.list_samples(reference):
        recorder, exact = SelectionRecorder(), SelectionRecorder()
        outputs = reviewer.run(inputs, recorder.watch())
        if outputs is None:
            continue
        with exact.watch():
            run_in_float64(float64_model, reviewer.spec, inputs)
        path = reviewer.folder.sample(sample.index)
        selections: list[SelectionData | None] = []
        for output in outputs:
            choice = recorder.find(output) if isinstance(output, torch.Tensor) else None
            selections.append(describe_selection(*choice, exact.keys) if choice else None)
        write_ties(path, [to_value(output) for output in outputs], selections)
        samples[sample.index] = sample.model_copy(update={"sha256": hash_sample(path)})
    return reference.model_copy(update={"samples": tuple(samples.values())})


def _add_file_choices(model: OnnxModel, reviewer: _Reviewer, reference: Reference) -> Reference:
    """Write the choices of a file that is the reference among values that are equal in rounding."""
    samples = {sample.index: sample for sample in reference.samples}
    names = list(model.file.output_names)
    positions = [names.index(output.name) for output in reviewer.spec.outputs]
    for sample, _ in reviewer.list_samples(reference):
        path = reviewer.folder.sample(sample.index)
        data = read_sample(path, reviewer.spec)
        if find_choices(model.file, data.inputs).write(path, data.outputs, positions):
            samples[sample.index] = sample.model_copy(update={"sha256": hash_sample(path)})
    return reference.model_copy(update={"samples": tuple(samples.values())})


def _add_rounded_outputs(reviewer: _Reviewer, reference: Reference) -> Reference:
    """Write the outputs of runs with other rounding that are far from the usual outputs.

    Near values may have another order there, so that a model selects others of them.
    """
    samples = {sample.index: sample for sample in reference.samples}
    tried = list(reviewer.list_samples(reference))
    budget = float(_MOST_COST)
    omitted = 0
    for number, (sample, inputs) in enumerate(tried):
        cost = _RunCost()
        usual = reviewer.run(inputs, create_mode(cost.add))
        other_runs: list[Outputs] = []
        # Each sample may use its part of what the earlier ones left.
        part = budget / (len(tried) - number)
        for seed in range(_CHOICES):
            if seed >= _ROUNDINGS and not other_runs:
                break  # rounding changes no choice of this sample
            if other_runs and part < cost.elements:
                omitted += _CHOICES - seed
                break
            part -= cost.elements
            budget -= cost.elements
            with SelectionRecorder().watch():  # the order of ONNX among equal values
                outputs = reviewer.run(inputs, round_differently(seed))
            known = [usual, *other_runs]
            if outputs is None or any(
                one is not None and reviewer.are_near(inputs, one, outputs) for one in known
            ):
                continue
            other_runs.append(outputs)
        if other_runs:
            path = reviewer.folder.sample(sample.index)
            values = [[to_value(output) for output in outputs] for outputs in other_runs]
            write_rounded_outputs(path, values)
            samples[sample.index] = sample.model_copy(update={"sha256": hash_sample(path)})
    text = _format_omitted(omitted, len(tried) * _CHOICES) or reference.unmeasured
    update = {"samples": tuple(samples.values()), "unmeasured": text}
    return reference.model_copy(update=update)


@dataclass(slots=True)
class _RunCost:
    """What a run with other rounding takes, by its elements.

    A measured time would change the verdict if the machine is busy.
    """

    elements: float = 0.0

    def add(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute an operator and add its elements and the terms of its sums."""
        result = func(*args, **kwargs)
        for each in internals.tree_leaves(result):
            if isinstance(each, torch.Tensor):
                terms = count_terms(str(read_schema(func).name), args)
                self.elements += each.numel() * (1 + terms / _TERMS)
        return result


def describe_selection(
    number: int, selection: IndexSelection, exact_keys: list[torch.Tensor]
) -> SelectionData:
    """Return a selection with the rounding of its values, measured by float64."""
    is_float = selection.keys.is_floating_point()
    keys = to_numpy(selection.keys.to(torch.float64 if is_float else torch.int64))
    wide = None
    if is_float and number < len(exact_keys):
        wide = to_numpy(exact_keys[number].to(torch.float64))
    return make_selection(
        keys,
        wide,
        to_numpy(selection.rows),
        is_first_promised=selection.is_first_promised,
    )
