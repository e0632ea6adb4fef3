"""Comparison of one output array with PyTorch's: kind and shape, then NaN and Inf, then values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from exporter.checks.comparison.tolerance import Limit
from exporter.runtimes.session import Array

#: Below this share of the scale, an error relative to the element has no meaning.
_SMALL = 1e-3
#: Number of elements that are compared at once.
_BLOCK = 1 << 15
#: A mask value is at least `_MASK`, and `_GAP` times larger than all other values.
_MASK, _GAP = 1e4, 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of one comparison."""

    problem: str = ""
    """The end of a sentence that starts with `output 'name': `; "" if the output passes."""
    max_abs: float = 0.0
    """Largest error, in the units of the output."""
    limit_ratio: float = 0.0
    """Largest error as a multiple of the allowed error at its element."""
    noise_ratio: float | None = None
    """Largest error as a multiple of PyTorch's own; None if that is unknown."""
    has_nonfinite_mismatch: bool = False
    """True if NaN or Inf have other positions than in PyTorch's output."""
    is_uncertain: bool = False
    """True if a problem may be as small as PyTorch's own error, which is too large for a bound, or
    if other rounding selects other elements."""
    is_large: bool = False
    """True if a problem is an error above a tenth of the scale, which is no rounding."""
    required: Limit | None = None
    """The smallest `atol` that would pass with the current `rtol` and `outside`, if one would."""
    details: Mapping[str, float | str] = field(default_factory=dict)
    """Other figures for the diagnosis; most of them only if the output fails."""


def measure_scale(array: Array) -> float:
    """Return the largest finite magnitude, without mask values; 0 if all finite numbers are 0.

    A mask adds -1e9 or the dtype's lowest number to logits of about 3. Relative to it, any logit
    would be correct. Mask values are 1,000 times larger than the rest, with no value in between.
    """
    if array.dtype.kind == "f" and array.size:
        extreme = max(float(array.max()), -float(array.min()))
        if extreme < _MASK:  # False for NaN and Inf
            return extreme
    values = np.abs(to_float64(array))
    finite = values[np.isfinite(values)]
    largest = float(finite.max()) if finite.size else 0.0
    if largest < _MASK:
        return largest
    is_near = finite < largest / _GAP
    nearest = float(finite[is_near].max()) if is_near.any() else 0.0
    is_apart = bool(nearest and finite[~is_near].min() >= _GAP * nearest)
    return nearest if is_apart else largest


def compare_arrays(
    actual: object, expected: Array, limit: Limit | None, target: Array
) -> Comparison:
    """Compare an output of the file with PyTorch's.

    `expected`: PyTorch's output in its own dtype; defines dtype, shape, NaN and Inf.
    `limit`: The allowed error of a float; None if values must be equal.
    `target`: The values that the limit refers to: `expected`, or the same output in float64.
    """
    if mismatch := find_mismatch(actual, expected):
        return mismatch
    actual = np.asarray(actual)
    if limit is None:
        differ = np.asarray(actual != expected)
        count = int(differ.sum())
        if not count:
            return Comparison()
        index = _unravel(differ, int(np.argmax(differ)))
        is_number = actual.dtype.kind in "biu"
        error = np.abs(to_float64(actual) - to_float64(expected)).max() if is_number else np.inf
        return Comparison(
            problem=f"{count} of {differ.size} elements differ, first at {list(index)} "
            f"(file {actual[index]}, PyTorch {expected[index]})",
            max_abs=float(error),
            limit_ratio=np.inf,
            details={"outside": count / differ.size},
        )
    if passed := _pass_quickly(actual, expected, limit, target):
        return passed
    values, reference = to_float64(actual), to_float64(expected)
    if mismatch := find_nonfinite_mismatch(actual, expected):
        return mismatch
    target_values = to_float64(target)
    # If float64 overflows and PyTorch's dtype does not, only PyTorch's value is usable.
    target_values = np.where(np.isfinite(target_values), target_values, reference)
    finite = np.isfinite(reference)
    comparison = _compare_within_limit(values, target_values, finite, limit)
    required = _compute_required_tolerance(values[finite], reference[finite], limit)
    return replace(comparison, required=required)


def find_mismatch(actual: object, expected: Array) -> Comparison | None:
    """Return a failed comparison if kind, dtype or shape differ, else None."""
    if not isinstance(actual, np.ndarray):
        return report_mismatch(f"no tensor but a {type(actual).__name__}")
    if actual.dtype != expected.dtype:
        return report_mismatch(f"{actual.dtype.name}, PyTorch gives {expected.dtype.name}")
    if actual.shape != expected.shape:
        return report_mismatch(f"shape {list(actual.shape)}, PyTorch gives {list(expected.shape)}")
    return None


def find_nonfinite_mismatch(actual: Array, expected: Array) -> Comparison | None:
    """Return a failed comparison if NaN or Inf are at other positions, else None."""
    # 0 for numbers, 1 for NaN, 2 for +Inf, 3 for -Inf.
    kinds, expected_kinds = (
        np.select([np.isnan(each), each == np.inf, each == -np.inf], [1, 2, 3], default=0)
        for each in map(to_float64, (actual, expected))
    )
    if np.array_equal(kinds, expected_kinds):
        return None
    differ = kinds != expected_kinds
    index = _unravel(differ, int(np.argmax(differ)))[: actual.ndim]
    comparison = report_mismatch(
        f"NaN or Inf differ in {int(differ.sum())} of {differ.size} elements, "
        f"first at {list(index)} (file {actual[index]}, PyTorch {expected[index]})"
    )
    return replace(comparison, has_nonfinite_mismatch=True)


def compute_max_error(one: Array, other: Array) -> float:
    """Return the largest difference of two float arrays, in float64; NaN if it is none."""
    # In blocks that stay in the processor's cache.
    first, second = np.ravel(one), np.ravel(other)
    buffer = np.empty(min(_BLOCK, first.size))
    largest = 0.0
    with np.errstate(all="ignore"):
        for start in range(0, first.size, _BLOCK):
            block = first[start : start + _BLOCK]
            error = buffer[: block.size]
            np.subtract(block, second[start : start + _BLOCK], out=error, dtype=np.float64)
            largest = max(float(np.abs(error, out=error).max()), largest)
            if math.isnan(largest):
                break
    return largest


def _pass_quickly(actual: Array, expected: Array, limit: Limit, target: Array) -> Comparison | None:
    """Return the comparison in the usual case, or None if a full comparison is needed.

    In the usual case all values are numbers, one bound applies to all, and all are within it.
    """
    are_floats = all(array.dtype.kind == "f" for array in (actual, target)) and actual.size
    if not are_floats or limit.rtol or limit.outside:
        return None
    # Above the scale the bound grows with the element.
    if not max(float(target.max()), -float(target.min())) <= limit.scale:
        return None
    error = compute_max_error(actual, target)
    pytorch_error = error if target is expected else compute_max_error(actual, expected)
    if not error <= limit.atol or not np.isfinite([error, pytorch_error]).all():
        return None
    return Comparison(
        max_abs=error,
        limit_ratio=error / limit.atol if error else 0.0,
        noise_ratio=error / limit.noise if limit.noise else None,
        details={"outside": 0.0},
        required=Limit(atol=pytorch_error),
    )


def report_mismatch(problem: str) -> Comparison:
    """Return a failed comparison of kind, dtype, shape or count, which no tolerance accepts."""
    return Comparison(problem=problem, max_abs=np.inf, limit_ratio=np.inf)


def to_float64(array: Array) -> Array:
    """Return the array in float64; complex numbers become pairs along a last axis."""
    if array.dtype.kind == "c":
        wide = np.ascontiguousarray(array.astype(np.complex128))
        return wide.view(np.float64).reshape(*array.shape, 2)
    return array.astype(np.float64)


def _compare_within_limit(values: Array, target: Array, finite: Array, limit: Limit) -> Comparison:
    """Compare the elements that are finite on both sides."""
    if not finite.any():
        return Comparison()
    with np.errstate(all="ignore"):
        error = np.where(finite, np.abs(values - target), 0.0)
        magnitude = np.where(finite, np.abs(target), 0.0)
        allowed = limit.atol * np.maximum(1.0, magnitude / limit.scale) + limit.rtol * magnitude
        ratio = np.where(error > 0, error / allowed, 0.0)  # n / 0 is inf, and never allowed
    outside = float((error > allowed).sum()) / int(finite.sum())
    max_abs = float(error.max())
    passed = Comparison(
        max_abs=max_abs,
        limit_ratio=float(ratio.max()),
        noise_ratio=max_abs / limit.noise if limit.noise else None,
        details={"outside": outside},
    )
    if outside <= limit.outside:
        return passed
    index = _unravel(ratio, int(np.argmax(ratio)))
    actual_value, target_value = float(values[index]), float(target[index])
    pair = f"file {actual_value:.6g}, PyTorch {target_value:.6g}"
    bound = limit.allowed_error(abs(target_value))
    excess = f"{float(error[index]) / bound:.3g} times the bound" if bound else "the bound is"
    problem = (
        f"error {float(error[index]):.2e} at {list(index)} ({pair}), "
        f"{excess} {bound:.2e} ({limit.reason})"
    )
    details = {
        "outside": outside,
        "worst": f"{list(index)}: {pair}",
        **_measure_errors(values[finite], target[finite]),
    }
    return replace(passed, problem=problem, details=details)


def _measure_errors(values: Array, target: Array) -> dict[str, float | str]:
    """Return figures over finite elements; relative errors exclude small elements."""
    with np.errstate(all="ignore"):
        error, magnitude = np.abs(values - target), np.abs(target)
        signal, loss = float(np.square(target).sum()), float(np.square(error).sum())
        lengths = float(np.sqrt(signal * np.square(values).sum()))
        figures: dict[str, float | str] = {
            "mean_abs": float(error.mean()),
            "p99_abs": float(np.quantile(error, 0.99)),
        }
        large = magnitude > _SMALL * magnitude.max()
        if large.any():
            relative = error[large] / magnitude[large]
            figures["max_rel"] = float(relative.max())
            figures["mean_rel"] = float(relative.mean())
            figures["p99_rel"] = float(np.quantile(relative, 0.99))
        if lengths and np.isfinite(lengths):
            figures["cosine"] = float((values * target).sum() / lengths)
        if signal and loss:
            figures["sqnr_db"] = float(10 * np.log10(signal / loss))
    return figures


def _compute_required_tolerance(values: Array, expected: Array, limit: Limit) -> Limit | None:
    """Return the tolerance relative to PyTorch's own output, as the manifest declares it."""
    if not values.size:
        return None
    with np.errstate(all="ignore"):
        excess = np.maximum(np.abs(values - expected) - limit.rtol * np.abs(expected), 0.0)
    exempt = int(limit.outside * excess.size)
    last = excess.size - 1 - exempt
    atol = float(excess.max() if not exempt else np.partition(excess, last)[last])
    return Limit(atol=atol, rtol=limit.rtol, outside=limit.outside)


def _unravel(array: Array, position: int) -> tuple[int, ...]:
    return tuple(int(index) for index in np.unravel_index(position, array.shape))
