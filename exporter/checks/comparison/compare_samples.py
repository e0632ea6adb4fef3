"""The comparison of samples with a session: the common part of all sample checks.

A sample passes if the file runs on it, and every output has the declared name, dtype and shape and
the values of PyTorch. PyTorch's own outputs must match the contract too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from exporter.checks.comparison.compare_arrays import Comparison, find_mismatch
from exporter.checks.comparison.compare_outputs import compare_output
from exporter.checks.comparison.custom_comparison import order_rows
from exporter.checks.comparison.tolerance import ComparedOutput, Limit
from exporter.checks.protocol import CheckedFile, DamagedSample, SampleData
from exporter.core.text import pluralize, round_up_two_digits
from exporter.jobs import Sample
from exporter.manifest import Output
from exporter.records.record import CheckResult, Status
from exporter.runtimes import RunFailure, Session
from exporter.runtimes.session import Array, OnnxValue, list_items


def list_alternatives(values: Sequence[OnnxValue], data: SampleData) -> Iterator[SampleData]:
    """Yield the sample with other right outputs.

    They are those with the lower index first among equal values, as ONNX selects, and those of
    PyTorch with other rounding. At last each row has the run that is nearest to the file: the rows
    of a batch have a choice each.
    """
    others = [outputs for outputs in (data.tied_outputs, *data.rounded_outputs) if outputs]
    without_float64 = (None,) * len(data.outputs)
    for outputs in others:
        yield replace(data, outputs=outputs, float64_outputs=without_float64)
    if data.rounded_outputs and (nearest := _combine_rows(values, [data.outputs, *others])):
        yield replace(data, outputs=nearest, float64_outputs=without_float64)


def _combine_rows(
    values: Sequence[OnnxValue], runs: Sequence[Sequence[OnnxValue]]
) -> tuple[Array, ...] | None:
    """Return outputs with the nearest run in each row, or None if the outputs have no rows."""
    columns: list[list[Array]] = []
    for value, *others in zip(values, *runs, strict=True):
        arrays = [each for each in (value, *others) if isinstance(each, np.ndarray)]
        shapes = {array.shape for array in arrays}
        if len(arrays) != len(runs) + 1 or len(shapes) != 1 or not arrays[0].ndim:
            return None
        columns.append(arrays)
    if len({arrays[0].shape[0] for arrays in columns}) != 1:
        return None
    distances = sum(_measure_distances(arrays) for arrays in columns)
    nearest = np.argmin(distances, axis=0)
    rows = np.arange(nearest.size)
    return tuple(np.stack(arrays[1:])[nearest, rows] for arrays in columns)


def _measure_distances(arrays: Sequence[Array]) -> Array:
    """Return the distance of each run from the file in each row, as a share of the output."""
    actual, *runs = (np.asarray(each, np.float64).reshape(len(each), -1) for each in arrays)
    scale = float(np.abs(actual[np.isfinite(actual)]).max(initial=0.0)) or 1.0
    with np.errstate(invalid="ignore"):
        distances = [np.abs(run - actual).max(axis=1, initial=0.0) / scale for run in runs]
    stacked: Array = np.nan_to_num(np.stack(distances), nan=1.0, posinf=1e9)
    return stacked


def describe_inputs(inputs: Mapping[str, Array], changed_input: str = "") -> str:
    """Return the integers and booleans of a sample in words.

    `changed_input`: The only input with other values than in the declared sample. Without it,
    the result has every input of zeros and ones.
    """
    if changed_input:
        array = inputs.get(changed_input)
        text = "" if array is None else _describe_values(array)
        return f"{changed_input}: {text}" if text else ""
    texts = [
        f"{name}: {_describe_values(array)}" for name, array in inputs.items() if _is_mixed(array)
    ]
    return ", ".join(texts)


def _is_exact(array: Array) -> bool:
    return array.dtype.kind in "biu" and array.size > 0


def _is_mixed(array: Array) -> bool:
    return _is_exact(array) and np.array_equal(np.unique(array), [0, 1])


def _describe_values(array: Array) -> str:
    if not _is_exact(array):
        return ""
    first = array.flat[0]
    if array.size == 1:
        return str(first)
    if (array == first).all():
        return f"all {first}"
    if not _is_mixed(array):
        return ""
    zero = array.dtype.type(0)
    count = f"{int((array == zero).sum())} of {array.size} elements are {zero}"
    rows = (array == zero).all(axis=-1)
    if array.ndim > 1 and rows.any():
        return f"{count}, {int(rows.sum())} of {rows.size} rows have no other value"
    return count


#: The sizes that a message names besides the first that fails.
_NAMED_FAILURES = 8
#: An error of up to so many bounds may be rounding: 1e-4 of the scale for 8 units in float32.
_NEAR = 100.0
_UNCERTAIN_FIX = (
    "rounding and a wrong value look the same; "
    "if it is rounding, declare `tolerance = { noise = 8 }`, "
    'or `compare = { rows = "unordered" }` if it changes the order of rows'
)
_ROUNDING_FIX = "; if this is rounding, declare "
_LARGE_FIX = (
    "PyTorch gives other values in float64: it draws numbers, keeps state, or a value near a limit "
    "decides; make it an input of the model"
)
#: A wrong file differs in more elements than PyTorch with other rounding by more than this factor.
_ROUNDED_FACTOR = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleResult:
    """The result for one sample."""

    sample: Sample
    problems: tuple[str, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    inputs: str = ""
    """The inputs of a failed sample in words."""
    is_tied: bool = False
    """Whether the file is right and selects other indices of equal or near values than PyTorch."""

    @property
    def is_uncertain(self) -> bool:
        """Whether all problems are errors that PyTorch itself may have."""
        uncertain = sum(comparison.is_uncertain for comparison in self.comparisons)
        return 0 < uncertain == len(self.problems)


def compare_samples(
    check: str,
    samples: Sequence[Sample],
    checked: CheckedFile,
    session: Session,
    device_name: str,
) -> CheckResult:
    """Run every sample and compare every output, even if the first sample fails."""
    try:
        results = [_compare_sample(sample, checked, session, device_name) for sample in samples]
    except DamagedSample as error:
        message = f"PyTorch's outputs cannot be read: {error}"
        return CheckResult(check=check, status=Status.ERROR, message=message)
    failed = [result for result in results if result.problems]
    status = Status.PASS
    message = ""
    is_large = any(item.is_large for result in failed for item in result.comparisons)
    if failed:
        status, message = Status.FAIL, _format_failures(failed, len(results))
        if all(result.is_uncertain for result in failed):
            fix = _LARGE_FIX if is_large else _UNCERTAIN_FIX
            status, message = Status.INCONCLUSIVE, f"{message}; {fix}"
    metrics = _collect_metrics(results)
    if status is Status.FAIL and len(failed) == len(results) > 1 and check == "axes":
        sizes = (f"{axis.name}={axis.example}" for axis in checked.spec.axes if axis.example)
        metrics["only"] = " ".join(sizes)
    ratios = [item.limit_ratio for result in failed for item in result.comparisons]
    if status is Status.FAIL and "needs" in metrics and max(ratios) <= _NEAR and not is_large:
        message = f"{message}{_ROUNDING_FIX}`{metrics['needs']}`"
    return CheckResult(check=check, status=status, message=message, metrics=metrics)


def remove_tolerance_advice(message: str) -> str:
    """Return the message of a comparison without the tolerance that would accept the error."""
    return re.sub(rf"{_ROUNDING_FIX}`[^`]*`|; {re.escape(_UNCERTAIN_FIX)}", "", message)


def _compare_sample(
    sample: Sample, checked: CheckedFile, session: Session, device_name: str
) -> SampleResult:
    if sample.error:
        return SampleResult(sample=sample, problems=(_format_pytorch_failure(sample),))
    names = [output.name for output in checked.spec.outputs]
    if list(session.output_names) != names:
        actual, declared = ", ".join(session.output_names) or "none", ", ".join(names)
        problem = f"the file's outputs are {actual}, declared {declared}"
        return SampleResult(sample=sample, problems=(problem,))
    checked = apply_sample_noise(sample, checked)
    data = checked.read(sample)
    try:
        # Copies, because a runtime may write to them and other files run on the same inputs.
        values = session.run({name: array.copy() for name, array in data.inputs.items()})
    except RunFailure as failure:
        return SampleResult(sample=sample, problems=(f"the runtime fails: {failure}",))
    if len(values) != len(names):
        problem = f"the runtime gives {len(values)} outputs, declared {len(names)}"
        return SampleResult(sample=sample, problems=(problem,))
    compared = compare_values(values, data, sample, checked, device_name)
    is_tied = False
    if any(result.problem for _, result in compared):
        for other in list_alternatives(values, data):
            inexact = sample.model_copy(update={"exact": False})
            results = compare_values(values, other, inexact, checked, device_name)
            if not any(result.problem for _, result in results):
                compared, is_tied = results, True
                break
        else:
            compared = _mark_selections(compared, data, sample, checked, device_name)
    problems = (
        *find_undeclared_outputs(checked.spec.outputs, data.outputs, sample.axes),
        *(f"{name}: {result.problem}" for name, result in compared if result.problem),
    )
    return SampleResult(
        sample=sample,
        problems=problems,
        comparisons=tuple(comparison for _, comparison in compared),
        inputs=describe_inputs(data.inputs, sample.changed_input) if problems else "",
        is_tied=is_tied,
    )


def compare_values(
    values: Sequence[OnnxValue],
    data: SampleData,
    sample: Sample,
    checked: CheckedFile,
    device_name: str,
) -> list[tuple[str, Comparison]]:
    indices = range(len(checked.spec.outputs))
    is_usual = bool(sample.scales)
    outputs = [
        ComparedOutput(checked, index, device_name, sample.exact, is_usual) for index in indices
    ]
    ordered = list(values)
    if any(output.compare and output.compare.rows for output in checked.spec.outputs):
        ordered = list(order_rows(values, data, outputs))
    for index in sample.undefined:
        ordered[index] = _accept_undefined(ordered[index], data.outputs[index])
    return [
        pair
        for value, checked_output in zip(ordered, outputs, strict=True)
        for pair in compare_output(value, data, checked_output)
    ]


def _mark_selections(
    compared: Sequence[tuple[str, Comparison]],
    data: SampleData,
    sample: Sample,
    checked: CheckedFile,
    device_name: str,
) -> list[tuple[str, Comparison]]:
    """Mark the outputs in which PyTorch with other rounding selects as many other elements."""
    pairs = zip(checked.spec.outputs, data.selections, strict=False)
    # The values of selected indices show whether they are right.
    known = {f"output '{output.name}'" for output, selection in pairs if selection}
    shares: dict[str, float] = {}
    if data.tied_outputs:
        for outputs in data.rounded_outputs:
            for name, result in compare_values(outputs, data, sample, checked, device_name):
                if result.problem and name not in known:
                    shares[name] = max(shares.get(name, 0.0), _read_share(result))
    return [
        (name, replace(result, is_uncertain=True, is_large=False))
        if result.problem and _read_share(result) <= _ROUNDED_FACTOR * shares.get(name, -1.0)
        else (name, result)
        for name, result in compared
    ]


def _read_share(comparison: Comparison) -> float:
    """Return the share of elements beyond the bound; infinite if kinds or shapes differ."""
    return float(comparison.details.get("outside", np.inf))


def _accept_undefined(value: OnnxValue, expected: OnnxValue) -> OnnxValue:
    """Return a tensor of the file with NaN at all elements that have NaN in PyTorch."""
    if isinstance(value, list) or isinstance(expected, list) or find_mismatch(value, expected):
        return value
    return np.where(np.isnan(expected), expected, value)


def apply_sample_noise(sample: Sample, checked: CheckedFile) -> CheckedFile:
    if not sample.noise:
        return checked
    update = {"noise": sample.noise, "large_noise": sample.large_noise}
    return replace(checked, reference=checked.reference.model_copy(update=update))


def find_undeclared_outputs(
    outputs: Sequence[Output], values: Sequence[OnnxValue], sizes: Mapping[str, int]
) -> Iterator[str]:
    """Yield the differences between PyTorch's outputs and the contract.

    An axis that only outputs have gets its size from the first tensor with that axis. An axis that
    only a sequence has is free in each item.
    """
    if len(outputs) != len(values):
        yield f"{len(outputs)} outputs are declared, PyTorch gives {len(values)}"
        return
    axis_sizes = dict(sizes)
    pairs = list(zip(outputs, values, strict=True))
    for output, value in pairs:
        if not isinstance(value, list):
            for dim, size in zip(output.file_shape, value.shape, strict=False):
                axis_sizes.setdefault(str(dim), size)
    for output, value in pairs:
        for index, array in enumerate(list_items(value)):
            subject = f"output '{output.name}'"
            subject = f"item {index} of {subject}" if isinstance(value, list) else subject
            shape = output.file_shape
            actual = list(array.shape)
            known = dict(axis_sizes)
            if array.dtype.name != output.file_dtype:
                yield f"{subject} is declared {output.file_dtype}, PyTorch gives {array.dtype}"
            expected = [
                known.setdefault(dim, size) if isinstance(dim, str) else dim
                for dim, size in zip(shape, actual, strict=False)
            ]
            if len(shape) != array.ndim or expected != actual:
                names = dict.fromkeys(dim for dim in shape if isinstance(dim, str) and dim in known)
                with_sizes = ", ".join(f"{name}={known[name]}" for name in names)
                declared = f"[{', '.join(map(str, shape))}]"
                declared += f" with {with_sizes}" if with_sizes else ""
                yield f"{subject} is declared {declared}, PyTorch gives {actual}"


def _format_pytorch_failure(sample: Sample) -> str:
    if sample.kind == "case":
        return f"PyTorch itself fails in this case: {sample.error}"
    if sample.kind == "declared":
        return f"PyTorch itself fails on its declared inputs: {sample.error}"
    fix = "fix the model, or promise less: narrow the axis with min, max or multiple_of"
    return f"PyTorch itself fails on {sample.name}: {sample.error}; {fix}"


def _format_failures(failed: Sequence[SampleResult], count: int) -> str:
    """Return the first failed sample in full, and the names of the others."""
    first, *others = failed
    is_named = bool(first.sample.error) and first.sample.kind == "axis"
    prefix = "" if first.sample.kind == "declared" or is_named else f"{first.sample.name}: "
    parts = [prefix + first.problems[0]]
    if first.inputs:
        parts.append(f"in this sample, {first.inputs}")
    if more := len(first.problems) - 1:
        parts.append(pluralize(more, "more problem"))
    if others:
        # A sweep of sizes may fail on each of them: a few are enough to see the pattern.
        names = [result.sample.name for result in others[:_NAMED_FAILURES]]
        names += ["..."] * (len(others) > _NAMED_FAILURES)
        parts.append(f"fails on {', '.join(names)} too ({len(failed)} of {count})")
    return "; ".join(parts)


def _collect_metrics(results: Sequence[SampleResult]) -> dict[str, int | float | str]:
    """Return the worst values of all samples and outputs, and more figures for a failure."""
    metrics: dict[str, int | float | str] = {"samples": len(results)}
    compared = [item for result in results for item in result.comparisons]
    if not compared:
        return metrics
    metrics["max_abs"] = max(item.max_abs for item in compared)
    metrics["of_limit"] = max(item.limit_ratio for item in compared)
    noise_ratios = [item.noise_ratio for item in compared if item.noise_ratio is not None]
    if noise_ratios:
        metrics["of_noise"] = max(noise_ratios)
    if tied := sum(result.is_tied for result in results):
        metrics["tied_samples"] = tied
    failed = [item for item in compared if item.problem]
    if failed:
        metrics.update(max(failed, key=lambda item: item.limit_ratio).details)
        # No tolerance helps if kinds or shapes differ, or if values must be equal.
        if all(item.required is not None for item in failed):
            metrics["needs"] = _format_tolerance([i.required for i in compared if i.required])
    return metrics


def _format_tolerance(required: Sequence[Limit]) -> str:
    """Return the smallest tolerance that accepts all, in the notation of the manifest."""
    least = round_up_two_digits(max(item.atol for item in required))
    atol = f"{least:.1e}" if least else "0.0"
    rtol = max(item.rtol for item in required)
    outside = min(item.outside for item in required)
    share = f", outside = {outside!r}" if outside else ""
    return f"tolerance = {{ atol = {atol}, rtol = {rtol!r}{share} }}"
