"""The comparison of one output with PyTorch's: a tensor, or a sequence item by item."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from exporter.checks.comparison.compare_arrays import (
    Comparison,
    compare_arrays,
    measure_scale,
    report_mismatch,
)
from exporter.checks.comparison.masked_positions import find_compared_positions
from exporter.checks.comparison.small_slices import compare_small_slices
from exporter.checks.comparison.ties import are_ties
from exporter.checks.comparison.tolerance import (
    Limit,
    compute_limit,
    compute_limit_without_float64,
    get_large_noise,
    get_rounding,
    is_float,
    is_limit_measured,
    measure_uncertainty,
)
from exporter.checks.files.sample_files import SampleData
from exporter.checks.protocol import CheckContext
from exporter.core.text import pluralize
from exporter.jobs.reference import Reference
from exporter.manifest import Output
from exporter.runtimes.values import Array, OnnxValue


@dataclass(frozen=True, slots=True)
class OutputContext:
    """One output of the contract on one device."""

    context: CheckContext
    index: int
    device: str
    is_exact: bool = True
    """True if the sample was run in float64, even if that run failed."""

    @property
    def output(self) -> Output:
        """The declared output."""
        return self.context.spec.outputs[self.index]


def compare_output(
    actual: object, data: SampleData, output: OutputContext
) -> Iterator[tuple[str, Comparison]]:
    """Compare an output with PyTorch's: of a sequence the count first, then each item."""
    name = f"output '{output.output.name}'"
    expected, wide = data.outputs[output.index], data.float64_outputs[output.index]
    if output.output.masked_by and not isinstance(expected, list):
        wide = None if isinstance(wide, list) else wide
        yield name, _compare_masked(actual, expected, wide, data, output)
    elif not isinstance(expected, list):
        wide = None if isinstance(wide, list) else wide
        comparison = _compare_tensor(actual, expected, wide, output)
        yield name, _accept_ties(comparison, actual, expected, data, output.index)
    elif not isinstance(actual, list):
        yield name, report_mismatch(f"no sequence but a {type(actual).__name__}")
    elif len(actual) != len(expected):
        counts = f"{pluralize(len(actual), 'item')}, PyTorch gives {len(expected)}"
        yield name, report_mismatch(counts)
    else:
        wide_items = split_float64_items(wide, len(expected))
        for index, arrays in enumerate(zip(actual, expected, wide_items, strict=True)):
            yield f"item {index} of {name}", _compare_tensor(*arrays, output)


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


def choose_limit(
    expected: Array, wide: Array | None, output: OutputContext
) -> tuple[Limit | None, Array]:
    """Return the limit of one tensor, and the values that it refers to.

    Args:
        expected: PyTorch's output.
        wide: The same output in float64.
        output: The output that contains the tensor.

    Returns:
        No limit if values must be equal.
    """
    key = (output.context, output.index, output.device)
    if not is_float(expected.dtype.name) or not is_float(output.output.dtype):
        return None, expected
    if not output.is_exact and is_limit_measured(*key):
        return compute_limit_without_float64(*key, measure_scale(expected)), expected
    is_usable = wide is not None and wide.shape == expected.shape and measure_scale(wide) > 0
    is_exact = is_usable and is_limit_measured(*key)
    target = wide if is_exact and wide is not None else expected
    return compute_limit(*key, measure_scale(target), exact=is_exact), target


def _compare_masked(
    actual: object, expected: Array, wide: Array | None, data: SampleData, output: OutputContext
) -> Comparison:
    """Compare kind, dtype and shape, then the values at which the mask is 1."""
    name, spec = output.output.masked_by, output.context.spec
    positions = find_compared_positions(spec, output.index, data.inputs, expected.shape)
    is_other = not isinstance(actual, np.ndarray) or (
        (actual.dtype, actual.shape) != (expected.dtype, expected.shape)
    )
    if positions is None or is_other or not expected.size:
        return _compare_tensor(actual, expected, wide, output)
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
        output,
    )
    if not comparison.problem:
        return comparison
    order = f"the index counts the {int(positions.sum())} values that {name!r} allows"
    return replace(comparison, problem=f"{comparison.problem}; {order}")


def _compare_tensor(
    actual: object, expected: Array, wide: Array | None, output: OutputContext
) -> Comparison:
    limit, target = choose_limit(expected, wide, output)
    comparison = compare_arrays(actual, expected, limit, target)
    key = (output.context, output.index, output.device)
    if limit is not None and isinstance(actual, np.ndarray) and is_limit_measured(*key):
        # Without float64 the target is PyTorch's own output: a difference leads to a review.
        is_compared = target is not expected or not output.is_exact
        arrays = (actual, expected, target)
        # An error that follows the terms of a sum is no bound of a small slice.
        if is_compared and not limit.outside and not output.context.reference.has_plain_noise:
            rounding = get_rounding(*key)
            comparison = compare_small_slices(comparison, arrays, limit, rounding)
    overflow = get_overflow(output.context.reference, output.index)
    if comparison.has_nonfinite_mismatch and overflow:
        return replace(comparison, problem=f"{comparison.problem}; {overflow}")
    return _mark_uncertainty(comparison, expected, output) if comparison.problem else comparison


def _mark_uncertainty(comparison: Comparison, expected: Array, output: OutputContext) -> Comparison:
    """Mark an error that is no larger than PyTorch's own error, if that is no bound."""
    context, index = output.context, output.index
    if not is_float(expected.dtype.name) or not is_float(output.output.dtype):
        return comparison
    uncertainty = measure_uncertainty(context, index, output.device, measure_scale(expected))
    if not comparison.max_abs <= uncertainty:
        return comparison
    share = get_large_noise(context, index) or 0.0
    dtype = expected.dtype.name
    problem = f"{comparison.problem}; PyTorch's own {dtype} error is {share:.1e} of the scale"
    return replace(comparison, problem=problem, is_uncertain=True)
