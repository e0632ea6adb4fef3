"""The comparison of one output with PyTorch's: a tensor, or a sequence item by item."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from exporter.checks.comparison import custom_comparison
from exporter.checks.comparison.compare_arrays import (
    Comparison,
    compare_arrays,
    measure_scale,
    report_mismatch,
)
from exporter.checks.comparison.tensor_limit import choose_limit
from exporter.checks.comparison.tolerance import (
    PRECISIONS,
    ComparedOutput,
    Limit,
    Precision,
    is_float,
    is_limit_measured,
    measure_uncertainty,
)
from exporter.checks.protocol import SampleData, SelectionData
from exporter.core.text import pluralize
from exporter.jobs import Reference
from exporter.manifest import Input, ModelSpec
from exporter.runtimes.session import Array, OnnxValue

#: Units in the last place of two values that were rounded on their own.
_UNITS = 16 * 2.0**-23


def are_ties(actual: Array, expected: Array, selection: SelectionData) -> bool:
    """Return True if all indices that differ select values that are equal within rounding."""
    keys = selection.keys
    rows = selection.rows
    exact = selection.exact
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    differ = actual != expected
    columns = keys.shape[1]
    if ((actual < 0) | (actual >= columns)).any() or rows.shape != actual.shape:
        return False
    pairs, expected_pairs = rows * columns + actual, rows * columns + expected
    if len(np.unique(pairs)) != len(np.unique(expected_pairs)):
        return False
    chosen, right = keys.flat[pairs[differ]], keys.flat[expected_pairs[differ]]
    are_exact = exact.flat[pairs[differ]] & exact.flat[expected_pairs[differ]]
    are_equal = chosen == right
    with np.errstate(all="ignore"):
        allowed = np.maximum(selection.margin, _UNITS * np.maximum(abs(chosen), abs(right)))
        are_near = np.abs(chosen - right) <= allowed
    promised = not selection.is_first_promised
    is_tie = np.where(are_exact, are_equal & promised, are_equal | are_near)
    return bool(is_tie.all())


def find_compared_positions(
    spec: ModelSpec, index: int, inputs: Mapping[str, Array], shape: Sequence[int]
) -> Array | None:
    """Return True for the elements of an output that are compared.

    The result is None if all are, or if the mask has other sizes than the output.
    """
    output = spec.outputs[index]
    item = next((item for item in spec.inputs if item.name == output.masked_by), None)
    if item is None or item.name not in inputs or len(shape) < len(output.shape):
        return None
    dims = [dim for dim in item.shape if dim != 1]
    array = inputs[item.name]
    allowed = np.equal(array, find_allowed_value(item))
    # Other dimensions of the mask have the size 1.
    allowed = allowed.squeeze(tuple(i for i, dim in enumerate(item.shape) if dim == 1))
    allowed = allowed.transpose([dims.index(dim) for dim in output.shape if dim in dims])
    sizes = [size if dim in dims else 1 for size, dim in zip(shape, output.shape, strict=False)] + [
        1
    ] * (len(shape) - len(output.shape))
    if allowed.size != math.prod(sizes):
        return None
    return np.broadcast_to(allowed.reshape(sizes), tuple(shape))


def find_allowed_value(mask: Input) -> int:
    """Return the value of a mask at the positions that are compared."""
    return 0 if mask.fill.kind == "padding" else 1


#: The share of the output's scale up to which a slice is small.
_SMALL = 1e-3
#: Units in the last place of the slice. A difference of large values has an error of 500 or more.
_MAX_NOISE = 64
#: With fewer elements, such an error may be small by luck.
_MIN_ELEMENTS = 4
#: With this number of elements in all small slices of an axis, their largest error is no luck.
_MANY_ELEMENTS = 32


@dataclass(frozen=True, slots=True)
class _Excess:
    """The worst slice of one axis."""

    ratio: float
    """Its largest error as a multiple of its bound."""
    error: float
    scale: float
    axis: int
    index: int


def compare_small_slices(
    passed: Comparison, actual: Array, expected: Array, exact: Array, limit: Limit
) -> Comparison:
    """Return the comparison with the problem of the worst small slice, if there is one.

    `exact`: PyTorch's output in float64.
    """
    is_table = expected.dtype.kind == "f" and expected.ndim > 1 and expected.size
    if passed.problem or not is_table or not math.isfinite(limit.scale):
        return passed
    axes = _measure_axes(actual, expected, exact, limit)
    worst = max(axes, key=lambda each: each.ratio, default=None)
    if worst is None or not worst.ratio > 1:
        return passed
    is_last = worst.axis == expected.ndim - 1
    kind, axis = ("column", "the last axis") if is_last else ("slice", f"axis {worst.axis}")
    problem = (
        f"error {worst.error:.2e} in {kind} {worst.index} of {axis}, which has the size "
        f"{worst.scale:.2e} beside {limit.scale:.2e}: {worst.ratio:.3g} times its bound"
    )
    return replace(passed, problem=problem, limit_ratio=worst.ratio, required=None)


def _measure_axes(actual: Array, expected: Array, exact: Array, limit: Limit) -> Iterator[_Excess]:
    """Yield the worst small slice of each axis that has one."""
    precision = PRECISIONS[expected.dtype.name]
    for axis in range(exact.ndim):
        others = tuple(other for other in range(exact.ndim) if other != axis)
        # A slice with NaN or Inf is not small. This needs no copy of a large output.
        magnitude = np.maximum(exact.max(axis=others), -exact.min(axis=others)).astype(np.float64)
        small = np.flatnonzero((magnitude > 0) & (magnitude <= _SMALL * limit.scale))
        if not small.size:
            continue
        error, ratio = _measure_slices(
            _take_slices(actual, axis, small),
            _take_slices(expected, axis, small),
            _take_slices(exact, axis, small),
            magnitude[small],
            limit,
            precision,
        )
        index = int(np.argmax(ratio))
        scale = float(magnitude[small][index])
        yield _Excess(float(ratio[index]), float(error[index]), scale, axis, int(small[index]))


def _take_slices(array: Array, axis: int, indices: Array) -> Array:
    """Return the slices in rows, in float64."""
    slices = np.moveaxis(array, axis, 0)[indices]
    return np.asarray(slices, np.float64).reshape(indices.size, -1)


def _measure_slices(
    actual: Array, pytorch: Array, exact: Array, scale: Array, limit: Limit, precision: Precision
) -> tuple[Array, Array]:
    """Return the largest error of each slice, and the same as a multiple of its bound.

    All slices have the largest relative error of PyTorch in one of them: a slice of a few elements
    may have a small error by luck.
    """
    share = np.abs(pytorch - exact).max(axis=1) / scale
    error = np.abs(actual - exact).max(axis=1)
    count = (exact != 0).sum(axis=1)
    is_bounded = (count >= _MIN_ELEMENTS) & (share <= _MAX_NOISE * precision.eps)
    noise = float(share[is_bounded].max(initial=0.0))
    is_measured = noise > 0 and int(count[is_bounded].sum()) >= _MANY_ELEMENTS
    # Approximations of functions such as the sigmoid have the rounding of 1.
    floor = precision.floor * precision.eps
    least = floor if is_measured else precision.atol + precision.rtol
    allowed = np.maximum(max(limit.factor * noise, least) * scale, floor)
    return error, np.where(is_bounded, error / np.minimum(allowed, limit.atol), 0.0)


def compare_output(
    actual: object, data: SampleData, checked_output: ComparedOutput
) -> Iterator[tuple[str, Comparison]]:
    """Compare an output with PyTorch's: of a sequence the count first, then each item."""
    name = f"output '{checked_output.output.name}'"
    expected, wide = data.outputs[checked_output.index], data.float64_outputs[checked_output.index]
    if not isinstance(expected, list):
        wide = None if isinstance(wide, list) else wide
        if checked_output.output.masked_by:
            yield name, _compare_masked(actual, expected, wide, data, checked_output)
        else:
            comparison = _compare_tensor(actual, expected, wide, checked_output)
            yield name, _accept_ties(comparison, actual, expected, data, checked_output.index)
    elif not isinstance(actual, list):
        yield name, report_mismatch(f"no sequence but a {type(actual).__name__}")
    elif len(actual) != len(expected):
        counts = f"{pluralize(len(actual), 'item')}, PyTorch gives {len(expected)}"
        yield name, report_mismatch(counts)
    else:
        wide_items = split_float64_items(wide, len(expected))
        for index, arrays in enumerate(zip(actual, expected, wide_items, strict=True)):
            yield f"item {index} of {name}", _compare_tensor(*arrays, checked_output)


def _accept_ties(
    comparison: Comparison, actual: object, expected: Array, data: SampleData, index: int
) -> Comparison:
    """Return a comparison that passes if the indices of a file select equal values."""
    selection = data.selections[index] if data.selections else None
    # The selection describes the tied outputs.
    is_tied = data.tied_outputs and data.tied_outputs[index] is expected
    if not comparison.problem or selection is None or not is_tied:
        return comparison
    if not isinstance(actual, np.ndarray):
        return comparison
    return Comparison() if are_ties(actual, expected, selection) else comparison


def get_overflow(reference: Reference, index: int) -> str:
    """Return how PyTorch's dtype leaves its range in an output, or "" if it does not."""
    return reference.overflow[index] if index < len(reference.overflow) else ""


def split_float64_items(value: OnnxValue | None, count: int) -> list[Array | None]:
    """Return the items of a sequence in float64, or `count` times None if there are none."""
    if isinstance(value, list) and len(value) == count:
        return [*value]
    return [None] * count


def _compare_masked(
    actual: object,
    expected: Array,
    wide: Array | None,
    data: SampleData,
    checked_output: ComparedOutput,
) -> Comparison:
    """Compare kind, dtype and shape, then the values at which the mask is 1."""
    name, spec = checked_output.output.masked_by, checked_output.checked.spec
    positions = find_compared_positions(spec, checked_output.index, data.inputs, expected.shape)
    is_other = not isinstance(actual, np.ndarray) or (
        (actual.dtype, actual.shape) != (expected.dtype, expected.shape)
    )
    if positions is None or is_other or not expected.size:
        return _compare_tensor(actual, expected, wide, checked_output)
    if not positions.any():
        return report_mismatch(
            f"no value is compared, because the mask {name!r} excludes every position; "
            "give it an allowed element"
        )
    has_wide = wide is not None and wide.shape == expected.shape
    comparison = _compare_tensor(
        np.asarray(actual)[positions],
        expected[positions],
        wide[positions] if wide is not None and has_wide else None,
        checked_output,
    )
    if not comparison.problem:
        return comparison
    order = f"the index counts the {int(positions.sum())} values that {name!r} allows"
    return replace(comparison, problem=f"{comparison.problem}; {order}")


def _compare_tensor(
    actual: object, expected: Array, wide: Array | None, checked_output: ComparedOutput
) -> Comparison:
    limit, target = choose_limit(expected, wide, checked_output)
    comparator = checked_output.output.compare
    if comparator is not None and not comparator.rows:
        compare_by = custom_comparison.compare_by
        result: Comparison = compare_by(comparator, actual, expected, target, limit, checked_output)
        return result
    comparison = compare_arrays(actual, expected, limit, target)
    if limit is not None and isinstance(actual, np.ndarray) and is_limit_measured(checked_output):
        # Without float64 the target is PyTorch's own output: a difference leads to a review.
        is_compared = target is not expected or not checked_output.is_exact
        # An error that follows the terms of a sum is no bound of a small slice.
        if (
            is_compared
            and not limit.outside
            and not checked_output.checked.reference.has_plain_noise
        ):
            comparison = compare_small_slices(comparison, actual, expected, target, limit)
    overflow = get_overflow(checked_output.checked.reference, checked_output.index)
    if comparison.has_nonfinite_mismatch and overflow:
        return replace(comparison, problem=f"{comparison.problem}; {overflow}")
    return (
        _mark_uncertainty(comparison, expected, checked_output)
        if comparison.problem
        else comparison
    )


#: A larger share of the scale is no rounding.
_LARGE = 0.1


def _mark_uncertainty(
    comparison: Comparison, expected: Array, checked_output: ComparedOutput
) -> Comparison:
    """Mark an error that is no larger than PyTorch's own error, if that is no bound."""
    if not is_float(expected.dtype.name) or not is_float(checked_output.output.dtype):
        return comparison
    scale = measure_scale(expected)
    comparison = replace(comparison, is_large=comparison.max_abs > _LARGE * scale)
    if not comparison.max_abs <= measure_uncertainty(checked_output, scale):
        return comparison
    share = checked_output.large_noise or 0.0
    dtype = expected.dtype.name
    problem = f"{comparison.problem}; PyTorch's own {dtype} error is {share:.1e} of the scale"
    return replace(comparison, problem=problem, is_uncertain=True)
