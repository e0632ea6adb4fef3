"""The comparison of small slices: columns, rows or channels beside much larger ones.

One bound for a whole output would accept any probability beside pixels of 10,000. So a slice of
any axis that is smaller than the output by 1,000 has a bound of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from exporter.checks.comparison.compare_arrays import Comparison
from exporter.checks.comparison.tolerance import Limit, Rounding
from exporter.runtimes.values import Array

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
    passed: Comparison,
    arrays: tuple[Array, Array, Array],
    limit: Limit,
    rounding: Rounding,
) -> Comparison:
    """Return the comparison with the problem of the worst small slice, if there is one.

    Args:
        passed: The comparison of the whole output.
        arrays: The outputs of the file, of PyTorch, and of PyTorch in float64.
        limit: The bound of the whole output.
        rounding: The rounding of its dtype.
    """
    expected = arrays[1]
    is_table = expected.dtype.kind == "f" and expected.ndim > 1 and expected.size
    if passed.problem or not is_table or not math.isfinite(limit.scale):
        return passed
    worst = max(_measure_axes(arrays, limit, rounding), key=lambda each: each.ratio, default=None)
    if worst is None or not worst.ratio > 1:
        return passed
    is_last = worst.axis == expected.ndim - 1
    kind, axis = ("column", "the last axis") if is_last else ("slice", f"axis {worst.axis}")
    problem = (
        f"error {worst.error:.2e} in {kind} {worst.index} of {axis}, which has the size "
        f"{worst.scale:.2e} beside {limit.scale:.2e}: {worst.ratio:.3g} times its bound"
    )
    return replace(passed, problem=problem, limit_ratio=worst.ratio, required=None)


def _measure_axes(
    arrays: tuple[Array, Array, Array], limit: Limit, rounding: Rounding
) -> Iterator[_Excess]:
    """Yield the worst small slice of each axis that has one."""
    exact = arrays[2]
    for axis in range(exact.ndim):
        others = tuple(other for other in range(exact.ndim) if other != axis)
        # A slice with NaN or Inf is not small. This needs no copy of a large output.
        magnitude = np.maximum(exact.max(axis=others), -exact.min(axis=others)).astype(np.float64)
        small = np.flatnonzero((magnitude > 0) & (magnitude <= _SMALL * limit.scale))
        if not small.size:
            continue
        actual, pytorch, wide = (_take_slices(array, axis, small) for array in arrays)
        error, ratio = _measure_slices(actual, pytorch, wide, magnitude[small], limit, rounding)
        index = int(np.argmax(ratio))
        scale = float(magnitude[small][index])
        yield _Excess(float(ratio[index]), float(error[index]), scale, axis, int(small[index]))


def _take_slices(array: Array, axis: int, indices: Array) -> Array:
    """Return the slices in rows, in float64."""
    slices = np.moveaxis(array, axis, 0)[indices]
    return np.asarray(slices, dtype=np.float64).reshape(indices.size, -1)


def _measure_slices(
    actual: Array, pytorch: Array, exact: Array, scale: Array, limit: Limit, rounding: Rounding
) -> tuple[Array, Array]:
    """Return the largest error of each slice, and the same as a multiple of its bound.

    All slices have the largest relative error of PyTorch in one of them: a slice of a few elements
    may have a small error by luck.
    """
    share = np.abs(pytorch - exact).max(axis=1) / scale
    error = np.abs(actual - exact).max(axis=1)
    count = (exact != 0).sum(axis=1)
    is_bounded = (count >= _MIN_ELEMENTS) & (share <= _MAX_NOISE * rounding.eps)
    noise = float(share[is_bounded].max(initial=0.0))
    is_measured = noise > 0 and int(count[is_bounded].sum()) >= _MANY_ELEMENTS
    # Approximations of functions such as the sigmoid have the rounding of 1.
    floor = rounding.floor * rounding.eps
    least = floor if is_measured else rounding.few
    allowed = np.maximum(max(rounding.factor * noise, least) * scale, floor)
    return error, np.where(is_bounded, error / np.minimum(allowed, limit.atol), 0.0)
