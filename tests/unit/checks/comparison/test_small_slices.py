"""A small slice beside a large one has a bound of its own: a column, a row or a channel."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.checks.comparison.compare_arrays import Comparison, compare_arrays
from exporter.checks.comparison.compare_outputs import compare_small_slices
from exporter.checks.comparison.tolerance import Limit
from exporter.runtimes.session import Array


def make_table(rows: int = 50, large: float = 1e5) -> Array:
    values = np.random.default_rng(0).normal(size=(rows, 2))
    return values * [large, 1.0]


def compare(actual: Array, exact: Array, noise: float = 0.0) -> Comparison:
    """Compare with the bound of the whole table; `noise` is PyTorch's error in column 1."""
    expected = exact.copy()
    expected[:, 1] += noise * (-1.0) ** np.arange(len(exact))
    limit = Limit(atol=1e-6 * 1e5, scale=float(np.abs(exact).max()), reason="measured")
    arrays = (actual.astype(np.float32), expected.astype(np.float32), exact)
    passed = compare_arrays(arrays[0], arrays[1], limit, exact)
    assert not passed.problem
    return compare_small_slices(passed, arrays, limit)


@pytest.mark.parametrize("error", [1e-4, 1e-2])
def test_an_error_of_a_small_column_fails(error: float) -> None:
    exact = make_table()
    wrong = exact + np.array([0.0, error])
    problem = compare(wrong, exact).problem
    assert "in column 1 of the last axis" in problem
    assert not compare(exact, exact).problem


@pytest.mark.parametrize(
    ("exact", "noise"),
    [
        (make_table(large=100.0), 0.0),  # the columns have similar sizes
        (make_table(rows=3), 0.0),  # three errors may be small by luck
        (make_table(), 1e-3),  # a difference of large values
    ],
)
def test_other_columns_have_the_bound_of_the_output(exact: Array, noise: float) -> None:
    assert not compare(exact + np.array([0.0, 1e-3]), exact, noise).problem


def test_a_multiple_of_pytorchs_error_is_allowed() -> None:
    exact = make_table()
    assert not compare(exact + np.array([0.0, 1e-5]), exact, 2e-6).problem
    assert compare(exact + np.array([0.0, 1e-4]), exact, 2e-6).problem


def test_numbers_without_a_finite_scale_are_not_compared_again() -> None:
    exact = make_table()
    exact[0, 1] = np.inf
    assert not compare(exact, exact).problem


def compare_slices(actual: Array, exact: Array) -> Comparison:
    expected = exact.astype(np.float32)
    limit = Limit(atol=1e-6 * 1e4, scale=float(np.abs(exact).max()), reason="measured")
    arrays = (actual.astype(np.float32), expected, exact)
    passed = compare_arrays(arrays[0], arrays[1], limit, exact)
    assert not passed.problem
    return compare_small_slices(passed, arrays, limit)


@pytest.mark.parametrize(("shape", "axis"), [((9, 4), 0), ((9, 5, 4), 0), ((3, 5, 4, 4), 1)])
def test_an_error_of_a_small_row_or_channel_fails(shape: tuple[int, ...], axis: int) -> None:
    exact = np.random.default_rng(0).normal(size=shape)
    np.moveaxis(exact, axis, 0)[1] *= 1e4
    wrong = exact.copy()
    np.moveaxis(wrong, axis, 0)[2] += 1e-5
    problem = compare_slices(wrong, exact).problem
    assert f"in slice 2 of axis {axis}" in problem
    assert not compare_slices(exact, exact).problem
    np.moveaxis(wrong, axis, 0)[1] += 1e-3
    np.moveaxis(wrong, axis, 0)[2] -= 1e-5
    assert not compare_slices(wrong, exact).problem


def test_a_lucky_slice_has_the_error_of_the_others() -> None:
    exact = np.random.default_rng(0).normal(size=(20, 8))
    exact[0] *= 1e4
    expected = exact.copy()
    expected[3:] *= 1 + 3e-6
    wrong = exact.copy()
    wrong[1] *= 1 + 2e-5
    limit = Limit(atol=1e-2, scale=float(np.abs(exact).max()), reason="measured")
    arrays = (wrong.astype(np.float32), expected.astype(np.float32), exact)
    passed = compare_arrays(arrays[0], arrays[1], limit, exact)
    assert not compare_small_slices(passed, arrays, limit).problem
