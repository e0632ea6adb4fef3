"""A small column beside a large one has a bound of its own."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.checks.comparison.compare_arrays import Comparison, compare_arrays
from exporter.checks.comparison.small_columns import compare_small_columns
from exporter.checks.comparison.tolerance import Limit, Rounding
from exporter.runtimes.values import Array

ROUNDING = Rounding(eps=2.0**-23, floor=8, factor=8.0, few=1.13e-5)


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
    return compare_small_columns(passed, arrays, limit, ROUNDING)


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
