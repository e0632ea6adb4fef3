"""The comparison of outputs by the comparator of a manifest, and the proof that it rejects."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from exporter.checks.comparison import comparators
from exporter.checks.comparison.compare_arrays import (
    Comparison,
    compute_max_error,
    find_mismatch,
    find_nonfinite_mismatch,
    measure_scale,
)
from exporter.checks.comparison.tensor_limit import choose_limit
from exporter.checks.comparison.tolerance import ComparedOutput, Limit
from exporter.checks.protocol import SampleData
from exporter.manifest import Comparator
from exporter.runtimes.session import Array, OnnxValue


def compare_by(
    comparator: Comparator,
    actual: object,
    expected: Array,
    target: Array,
    limit: Limit | None,
    checked_output: ComparedOutput,
) -> Comparison:
    """Compare by the comparator of the manifest; kind, dtype, shape, NaN and Inf must be equal.

    A function receives other sizes, too, along an axis that only outputs have.
    """
    is_sized = not (comparator.call and _differs_in_free_axes(actual, expected, checked_output))
    if is_sized and (mismatch := find_mismatch(actual, expected)):
        return mismatch
    values = np.asarray(actual)
    if comparator.call:
        function = checked_output.checked.load_function(comparator.call)
        outcome = comparators.compare_by_function(function, comparator.call, values, expected)
    elif mismatch := find_nonfinite_mismatch(values, expected):
        return mismatch
    elif comparator.cosine is not None:
        usual = _measure_usual_signal(checked_output)
        outcome = comparators.compare_cosine(values, target, comparator.cosine, usual)
    elif comparator.sqnr is not None:
        usual = _measure_usual_signal(checked_output)
        outcome = comparators.compare_sqnr(values, target, comparator.sqnr, usual)
    else:
        allowed = limit.allowed_error(measure_scale(expected)) if limit else 0.0
        outcome = comparators.compare_top_k(values, expected, comparator.top_k or 1, allowed)
    has_error = is_sized and values.dtype.kind == "f" and values.size > 0
    error = compute_max_error(values, expected) if has_error else 0.0
    return Comparison(
        problem=outcome.problem,
        max_abs=error if math.isfinite(error) else 0.0,
        limit_ratio=outcome.ratio,
        details=outcome.figures,
    )


def _measure_usual_signal(checked_output: ComparedOutput) -> float:
    """Return the mean square of PyTorch's output for the declared inputs; 0 if it is unknown."""
    samples = checked_output.checked.reference.samples
    declared = next((each for each in samples if each.kind == "declared" and not each.error), None)
    if declared is None:
        return 0.0
    value = checked_output.checked.read(declared).outputs[checked_output.index]
    array = np.asarray([] if isinstance(value, list) else value, np.float64)
    finite = array[np.isfinite(array)]
    return float(np.square(finite).mean()) if finite.size else 0.0


def _differs_in_free_axes(actual: object, expected: Array, checked_output: ComparedOutput) -> bool:
    """Return True if only sizes of axes differ that no input has."""
    dims, axes = checked_output.output.file_shape, checked_output.checked.spec.axes
    free = {axis.name for axis in axes if axis.example is None}
    if not isinstance(actual, np.ndarray) or actual.dtype != expected.dtype:
        return False
    if not actual.ndim == expected.ndim == len(dims) or actual.shape == expected.shape:
        return False
    pairs = zip(actual.shape, expected.shape, dims, strict=True)
    return all(one == other or dim in free for one, other, dim in pairs)


def order_rows(
    values: Sequence[OnnxValue], data: SampleData, outputs: Sequence[ComparedOutput]
) -> Sequence[OnnxValue]:
    """Return the outputs of a file with their unordered rows in the order of PyTorch's rows."""
    ordered = list(values)
    names = [item.output.name for item in outputs]
    for item in outputs:
        comparator = item.output.compare
        if comparator is None or not comparator.rows:
            continue
        group = [item, *(outputs[names.index(name)] for name in comparator.along)]
        depth = max(len(item.output.shape) - 2, 0)
        pairs = [(values[each.index], data.outputs[each.index]) for each in group]
        if any(isinstance(other, list) or find_mismatch(one, other) for one, other in pairs):
            continue  # the comparison of this output reports the mismatch
        arrays = {each.index: np.array(values[each.index]) for each in group}
        shape = arrays[item.index].shape
        if not 1 < shape[depth] <= comparators.MAX_ROWS:
            continue
        for position in np.ndindex(shape[:depth]):
            order = _match_rows(group, values, data, position)
            for array in arrays.values():
                array[position] = array[position][order]
        for index, array in arrays.items():
            ordered[index] = array
    return ordered


def _match_rows(
    group: Sequence[ComparedOutput],
    values: Sequence[OnnxValue],
    data: SampleData,
    position: tuple[int, ...],
) -> Array:
    """Return for each row of PyTorch the row of the file with the smallest error."""
    costs: Array = np.zeros(())
    for item in group:
        expected, wide = data.outputs[item.index], data.float64_outputs[item.index]
        if isinstance(expected, list):
            continue
        limit, target = choose_limit(expected, None if isinstance(wide, list) else wide, item)
        rows = target[position]
        allowed = None
        if limit is not None:
            size = np.abs(rows.astype(np.float64))
            allowed = limit.atol * np.maximum(1.0, size / limit.scale) + limit.rtol * size
        actual = np.asarray(values[item.index])[position]
        costs = np.maximum(costs, comparators.measure_row_costs(actual, rows, allowed))
    return comparators.match_rows(costs)


def find_accepted_output(checked_output: ComparedOutput) -> str:
    """Return a wrong output that the comparator accepts, or "" if it rejects all."""
    checked, comparator = checked_output.checked, checked_output.output.compare
    samples = [each for each in checked.reference.promised_samples if not each.error]
    declared = next((each for each in samples if each.kind == "declared"), None)
    if comparator is None or declared is None:
        return ""
    data = checked.read(declared)
    expected = np.asarray(data.outputs[checked_output.index])
    target = data.float64_outputs[checked_output.index]
    target = np.asarray(target) if isinstance(target, np.ndarray) else expected
    if target.shape != expected.shape:
        target = expected

    def accepts(wrong: Array) -> bool:
        return not compare_by(comparator, wrong, expected, target, None, checked_output).problem

    # Zeros have no largest value, so a ranking gets the opposite one.
    wrong = -expected if comparator.top_k else np.zeros_like(expected)
    if not np.array_equal(wrong, expected) and accepts(wrong):
        return "the opposite values" if comparator.top_k else "zeros"
    others = [
        (sample.name, np.asarray(checked.read(sample).outputs[checked_output.index]))
        for sample in samples
        if sample.kind == "values" and sample.factor == 1.0
    ]
    others = [
        (name, other)
        for name, other in others
        if other.shape == expected.shape and not np.array_equal(other, expected)
    ]
    if others and all(accepts(other) for _, other in others):
        return f"PyTorch's values for other inputs ('{others[0][0]}')"
    return ""
