"""One output of the file held against PyTorch's: kind and shape first, then NaN and Inf, then size.

In: two arrays, and a `Limit` for floats. Out: a `Comparison`: what is wrong, and by how much.
No judgement on broadcast shapes, no cast to make dtypes fit, no element without a partner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from exporter.checks.comparison.tolerance import Limit

Array = np.ndarray[Any, Any]

#: Below this share of the scale, an error relative to the element says nothing.
_SMALL = 1e-3
#: Elements that are compared at once.
_BLOCK = 1 << 15
#: Numbers that mask others begin here, and stand so far above these.
_MASK, _GAP = 1e4, 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """The smallest `atol` that would pass beside the `rtol` and `outside` in force."""

    atol: float
    rtol: float
    outside: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What came of it."""

    problem: str = ""
    """What is wrong, to follow `output 'name': `; empty where nothing is."""
    max_abs: float = 0.0
    """Largest error, in the units of the output."""
    of_limit: float = 0.0
    """Largest error as a multiple of what is allowed at its element."""
    of_noise: float | None = None
    """Largest error as a multiple of PyTorch's own; None where that is not known."""
    is_elsewhere: bool = False
    """Whether NaN or Inf stand elsewhere than in PyTorch's output."""
    needed: Needed | None = None
    """The tolerance by hand that would pass; None where no tolerance would."""
    details: Mapping[str, float | str] = field(default_factory=dict)
    """Other figures, for who has to find out why; most of them only where something is wrong."""


def scale_of(array: Array) -> float:
    """The largest finite magnitude, apart from what lies far beyond all others.

    A mask puts -1e9 or the dtype's lowest number beside logits of 3: measured by it, any logit is
    right. Such numbers stand a factor of 1,000 above the rest, with nothing in between.

    Returns:
        0 where there is no finite number but 0.
    """
    if array.dtype.kind == "f" and array.size:
        extreme = max(float(array.max()), -float(array.min()))
        if extreme < _MASK:  # no NaN is less than anything, and no Inf less than this
            return extreme
    values = np.abs(_real(array))
    finite = values[np.isfinite(values)]
    largest = float(finite.max()) if finite.size else 0.0
    if largest < _MASK:
        return largest
    is_near = finite < largest / _GAP
    nearest = float(finite[is_near].max()) if is_near.any() else 0.0
    is_apart = bool(nearest and finite[~is_near].min() >= _GAP * nearest)
    return nearest if is_apart else largest


def compare(actual: object, expected: Array, limit: Limit | None, against: Array) -> Comparison:
    """Holds an output of the file against PyTorch's.

    Args:
        actual: What the session put out.
        expected: What PyTorch put out, in its own dtype: says dtype, shape, NaN and Inf.
        limit: How far a float may be off; None where it must be equal.
        against: The values that the limit is about: `expected`, or the same output in float64.
    """
    if not isinstance(actual, np.ndarray):
        return misfit(f"no tensor but a {type(actual).__name__}")
    if actual.dtype != expected.dtype:
        return misfit(f"{actual.dtype.name}, PyTorch gives {expected.dtype.name}")
    if actual.shape != expected.shape:
        return misfit(f"shape {list(actual.shape)}, PyTorch gives {list(expected.shape)}")
    if limit is None:
        return _equal(actual, expected)
    if quick := _quickly(actual, expected, limit, against):
        return quick
    found, wanted = _real(actual), _real(expected)
    kinds, wanted_kinds = _kinds(found), _kinds(wanted)
    if not np.array_equal(kinds, wanted_kinds):
        return _other_kind(actual, expected, kinds != wanted_kinds)
    exact = _real(against)
    # Where float64 leaves the range and PyTorch's dtype does not, the latter is all there is.
    exact = np.where(np.isfinite(exact), exact, wanted)
    finite = np.isfinite(wanted)
    compared = _within(found, exact, finite, limit)
    return replace(compared, needed=_needed(found[finite], wanted[finite], limit))


def largest_error(one: Array, other: Array) -> float:
    """The largest difference of two arrays of floats of one shape, in float64.

    Returns:
        NaN where either has a NaN, or both have the same infinity.
    """
    # Block by block, so that what is computed stays in the processor's cache.
    first, second = np.ravel(one), np.ravel(other)
    buffer = np.empty(min(_BLOCK, first.size))
    largest = 0.0
    with np.errstate(all="ignore"):
        for start in range(0, first.size, _BLOCK):
            here = first[start : start + _BLOCK]
            error = buffer[: here.size]
            np.subtract(here, second[start : start + _BLOCK], out=error, dtype=np.float64)
            largest = max(float(np.abs(error, out=error).max()), largest)
            if math.isnan(largest):
                break
    return largest


def _quickly(actual: Array, expected: Array, limit: Limit, against: Array) -> Comparison | None:
    """The usual case: numbers everywhere, one bound for all, and none beyond; else None."""
    plain = all(array.dtype.kind == "f" for array in (actual, against)) and actual.size
    if not plain or limit.rtol or limit.outside:
        return None
    # Above the scale the bound grows with the element.
    if not max(float(against.max()), -float(against.min())) <= limit.scale:
        return None
    error = largest_error(actual, against)
    own = error if against is expected else largest_error(actual, expected)
    if not error <= limit.atol or not np.isfinite([error, own]).all():
        return None
    return Comparison(
        max_abs=error,
        of_limit=error / limit.atol if error else 0.0,
        of_noise=error / limit.noise if limit.noise else None,
        details={"outside": 0.0},
        needed=Needed(atol=own, rtol=0.0, outside=0.0),
    )


def misfit(problem: str) -> Comparison:
    """What no tolerance would let pass: another kind of value, dtype, shape or count."""
    return Comparison(problem=problem, max_abs=np.inf, of_limit=np.inf)


def _real(array: Array) -> Array:
    """In float64; complex numbers as pairs along a last axis, integers as they would be cast."""
    if array.dtype.kind == "c":
        wide = np.ascontiguousarray(array.astype(np.complex128))
        return wide.view(np.float64).reshape(*array.shape, 2)
    return array.astype(np.float64)


def _kinds(values: Array) -> Array:
    """0 for numbers, 1 for NaN, 2 for +Inf, 3 for -Inf."""
    return np.select([np.isnan(values), values == np.inf, values == -np.inf], [1, 2, 3], default=0)


def _other_kind(actual: Array, expected: Array, differ: Array) -> Comparison:
    where = _place(differ, int(np.argmax(differ)))[: actual.ndim]
    found = misfit(
        f"NaN or Inf differ in {int(differ.sum())} of {differ.size} elements, "
        f"first at {list(where)} (file {actual[where]}, PyTorch {expected[where]})"
    )
    return replace(found, is_elsewhere=True)


def _equal(actual: Array, expected: Array) -> Comparison:
    differ = np.asarray(actual != expected)
    count = int(differ.sum())
    if not count:
        return Comparison()
    where = _place(differ, int(np.argmax(differ)))
    return Comparison(
        problem=f"{count} of {differ.size} elements differ, first at {list(where)} "
        f"(file {actual[where]}, PyTorch {expected[where]})",
        max_abs=_largest_difference(actual, expected),
        of_limit=np.inf,
        details={"outside": count / differ.size},
    )


def _largest_difference(actual: Array, expected: Array) -> float:
    if actual.dtype.kind not in "biu":
        return float(np.inf)
    return float(np.abs(_real(actual) - _real(expected)).max())


def _within(found: Array, exact: Array, finite: Array, limit: Limit) -> Comparison:
    """The elements that are numbers on both sides."""
    if not finite.any():
        return Comparison()
    with np.errstate(all="ignore"):
        error = np.where(finite, np.abs(found - exact), 0.0)
        magnitude = np.where(finite, np.abs(exact), 0.0)
        allowed = limit.atol * np.maximum(1.0, magnitude / limit.scale) + limit.rtol * magnitude
        excess = np.where(error > 0, error / allowed, 0.0)  # n / 0 is inf, and never allowed
    outside = float((error > allowed).sum()) / int(finite.sum())
    max_abs = float(error.max())
    noise = limit.noise
    passed = Comparison(
        max_abs=max_abs,
        of_limit=float(excess.max()),
        of_noise=max_abs / noise if noise else None,
        details={"outside": outside},
    )
    if outside <= limit.outside:
        return passed
    worst = _place(excess, int(np.argmax(excess)))
    place = f"{list(worst)}: file {found[worst]:.6g}, PyTorch {exact[worst]:.6g}"
    details = {"outside": outside, "worst": place, **_details(found[finite], exact[finite])}
    return replace(passed, problem=_sentence(found, exact, error, limit, worst), details=details)


def _sentence(
    found: Array, exact: Array, error: Array, limit: Limit, worst: tuple[int, ...]
) -> str:
    off, allowed = float(error[worst]), limit.at(abs(float(exact[worst])))
    times = f"{off / allowed:.3g} times the bound" if allowed else "the bound is"
    return (
        f"error {off:.2e} at {list(worst)} (file {found[worst]:.6g}, PyTorch {exact[worst]:.6g}), "
        f"{times} {allowed:.2e} ({limit.why})"
    )


def _details(found: Array, exact: Array) -> dict[str, float | str]:
    """Figures over the elements that are numbers.

    Relative errors leave out elements that are small against the largest.
    """
    with np.errstate(all="ignore"):
        error, magnitude = np.abs(found - exact), np.abs(exact)
        signal, loss = float(np.square(exact).sum()), float(np.square(error).sum())
        lengths = float(np.sqrt(signal * np.square(found).sum()))
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
            figures["cosine"] = float((found * exact).sum() / lengths)
        if signal and loss:
            figures["sqnr_db"] = float(10 * np.log10(signal / loss))
    return figures


def _needed(found: Array, wanted: Array, limit: Limit) -> Needed | None:
    """Against PyTorch's own output, as a tolerance by hand is."""
    if not found.size:
        return None
    with np.errstate(all="ignore"):
        over = np.maximum(np.abs(found - wanted) - limit.rtol * np.abs(wanted), 0.0)
    spared = int(limit.outside * over.size)
    last = over.size - 1 - spared
    atol = float(over.max() if not spared else np.partition(over, last)[last])
    return Needed(atol=atol, rtol=limit.rtol, outside=limit.outside)


def _place(array: Array, flat: int) -> tuple[int, ...]:
    return tuple(int(index) for index in np.unravel_index(flat, array.shape))
