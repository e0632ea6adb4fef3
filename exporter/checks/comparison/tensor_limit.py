"""The limit of one tensor, and the values that it refers to."""

from __future__ import annotations

from exporter.checks.comparison.compare_arrays import measure_scale
from exporter.checks.comparison.tolerance import (
    ComparedOutput,
    Limit,
    compute_limit,
    compute_limit_without_float64,
    is_float,
    is_limit_measured,
)
from exporter.runtimes.session import Array


def choose_limit(
    expected: Array, wide: Array | None, checked_output: ComparedOutput
) -> tuple[Limit | None, Array]:
    """Return the limit of one tensor, None if values must be equal, and the values it refers to.

    `wide`: The same output in float64.
    """
    if not is_float(expected.dtype.name) or not is_float(checked_output.output.dtype):
        return None, expected
    if not checked_output.is_exact and is_limit_measured(checked_output):
        return compute_limit_without_float64(checked_output, measure_scale(expected)), expected
    is_usable = wide is not None and wide.shape == expected.shape and measure_scale(wide) > 0
    is_exact = is_usable and is_limit_measured(checked_output)
    target = wide if is_exact and wide is not None else expected
    return compute_limit(checked_output, measure_scale(target), exact=is_exact), target
