"""The comparison of small columns: slices of the last axis beside much larger ones.

One bound for a whole output would accept any probability beside pixels of 10,000. So a column that
is smaller than the output by 1,000 has a bound of its own.

Input: arrays that are within the bound of the whole output. Output: a `Comparison` of the small
columns. Columns without a bound are not compared again: those in which PyTorch's own error is
large, because they are differences of large values, and those with very few elements.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from exporter.checks.comparison.compare_arrays import Comparison
from exporter.checks.comparison.tolerance import Limit, Rounding
from exporter.runtimes.values import Array

#: The share of the output's scale up to which a column is small.
_SMALL = 1e-3
#: Units in the last place of the column. A difference of large values has an error of 500 or more.
_MAX_NOISE = 64
#: With fewer elements, such an error may be small by luck.
_MIN_ELEMENTS = 4


def compare_small_columns(
    passed: Comparison,
    arrays: tuple[Array, Array, Array],
    limit: Limit,
    rounding: Rounding,
) -> Comparison:
    """Return the comparison with the problem of the worst small column, if there is one.

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
    rows = [array.reshape(-1, array.shape[-1]) for array in arrays]
    # A column with NaN or Inf is not small. This needs no copy of a large output.
    magnitude = np.maximum(rows[2].max(axis=0), -rows[2].min(axis=0)).astype(np.float64)
    small = np.flatnonzero((magnitude > 0) & (magnitude <= _SMALL * limit.scale))
    if not small.size:
        return passed
    actual, pytorch, exact = (np.asarray(array[:, small], dtype=np.float64) for array in rows)
    noise = np.abs(pytorch - exact).max(axis=0)
    error = np.abs(actual - exact).max(axis=0)
    scale = magnitude[small]
    count = (exact != 0).sum(axis=0)
    is_bounded = (count >= _MIN_ELEMENTS) & (noise <= _MAX_NOISE * rounding.eps * scale)
    # Approximations of functions such as the sigmoid have the rounding of 1.
    floor = rounding.floor * rounding.eps
    allowed = np.maximum(np.maximum(rounding.factor * noise, rounding.few * scale), floor)
    ratio = np.where(is_bounded, error / np.minimum(allowed, limit.atol), 0.0)
    worst = int(np.argmax(ratio))
    if not ratio[worst] > 1:
        return passed
    problem = (
        f"error {error[worst]:.2e} in column {int(small[worst])} of the last axis, which has the "
        f"size {scale[worst]:.2e} beside {limit.scale:.2e}: {ratio[worst]:.3g} times its bound"
    )
    return replace(passed, problem=problem, limit_ratio=float(ratio[worst]), required=None)
