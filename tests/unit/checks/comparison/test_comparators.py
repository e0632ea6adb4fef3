"""Each comparator accepts a sound output, rejects a broken one, and `power` finds a weak one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.checks.comparison.comparators import (
    compare_by_function,
    compare_cosine,
    compare_sqnr,
    compare_top_k,
    match_rows,
)
from exporter.checks.comparison.compare_samples import compare_samples
from exporter.checks.protocol import CheckedFile
from exporter.checks.validity_checks import check_power
from exporter.manifest import Axis, Comparator, Output, Tolerance
from exporter.records.record import CheckResult, Status
from tests.unit.checks.contexts import (
    BATCH,
    ConstantSession,
    as_kind,
    contract,
    make_reference,
    make_subject,
    value,
    write,
)

RNG = np.random.default_rng(0)
EXPECTED = RNG.normal(size=(6, 50)).astype(np.float32)
NOISE = RNG.normal(size=(6, 50)).astype(np.float32)


def with_error(share: float, row: int | None = None) -> Any:
    """Return the expected values with noise of this share, in one row or in all."""
    error = share * NOISE
    if row is not None:
        error = error * (np.arange(6) == row)[:, None]
    return (EXPECTED + error).astype(np.float32)


@pytest.mark.parametrize(
    ("actual", "is_right"),
    [
        (with_error(0.02), True),
        (with_error(0.2), False),
        (with_error(1.0, row=4), False),  # the cosine of the whole output is still 0.9
        (2 * EXPECTED, False),
        (1.01 * EXPECTED, True),
        (-EXPECTED, False),
        (np.zeros_like(EXPECTED), False),
        (EXPECTED, True),
    ],
)
def test_cosine_judges_direction_and_length_of_each_row(actual: Any, is_right: bool) -> None:
    outcome = compare_cosine(actual, EXPECTED, 0.999)
    assert (not outcome.problem, outcome.ratio <= 1) == (is_right, is_right)


def test_cosine_accepts_noise_in_a_small_row() -> None:
    expected = EXPECTED.copy()
    expected[3] *= 1e-3
    assert not compare_cosine(expected + 0.01 * NOISE, expected, 0.999).problem
    assert compare_cosine(expected + 0.5 * NOISE, expected, 0.999).problem


@pytest.mark.parametrize(("scale", "is_right"), [(0.03, False), (1e-4, True)])
def test_cosine_refuses_a_row_of_zeros_for_values_that_8_bits_hold(
    scale: float, is_right: bool
) -> None:
    expected = EXPECTED.copy()
    expected[3] *= scale
    actual = expected.copy()
    actual[3] = 0
    assert (not compare_cosine(actual, expected, 0.999).problem) == is_right
    assert not compare_cosine(expected, expected, 0.999).problem


def test_the_message_of_sqnr_has_both_ratios() -> None:
    problem = compare_sqnr(with_error(0.05, row=2), EXPECTED, 40).problem
    assert "dB of signal to noise in row 2 of the first axis (" in problem
    assert "at least 40 dB are promised" in problem


LOGITS = np.array([[1, 5, 3, 2, 4], [9, 1, 2, 3, 8]], np.float32)


@pytest.mark.parametrize(
    ("actual", "count", "is_right"),
    [
        (LOGITS * 3 - 7, 2, True),
        ([[1, 4, 3, 2, 5], [8, 1, 2, 3, 9]], 2, True),  # in any order
        ([[1, 4, 3, 2, 5], [8, 1, 2, 3, 9]], 1, False),
        ([[1, 5, 4.1, 2, 4], [9, 1, 2, 3, 8]], 2, False),
        ([[0, 0, 0, 0, 1], [9, 1, 2, 3, 8]], 2, False),
    ],
)
def test_top_k_compares_positions(actual: Any, count: int, is_right: bool) -> None:
    outcome = compare_top_k(np.array(actual, np.float32), LOGITS, count)
    assert (not outcome.problem, outcome.ratio <= 1) == (is_right, is_right)


def test_top_k_accepts_other_positions_of_equal_values() -> None:
    tied = np.array([[1, 2, 2, 0]], np.float32)
    swapped = np.array([[1, 2, 2.0001, 0]], np.float32)
    assert not compare_top_k(swapped, tied, 1).problem
    assert compare_top_k(np.array([[3, 2, 2, 0]], np.float32), tied, 1).problem


def test_top_k_reports_how_near_another_position_is() -> None:
    far, near = (np.array([[0, 1 - gap, 1]], np.float32) for gap in (1.0, 0.1))
    expected = np.array([[0, 0, 1]], np.float32)
    assert compare_top_k(far, expected, 1).ratio < 0.1 < compare_top_k(near, expected, 1).ratio


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ((1.0, 2.0), ""),
        ((3.0, 2.0), "error 3 of f, the bound is 2"),
        ((float("nan"), 2.0), "f returns the error nan"),
        ((1.0, float("inf")), "f returns the error 1, the bound inf"),
        (1.0, "f returns a float; expected two numbers"),
        (("a", 1.0), "f returns ('a', 1.0); expected two numbers"),
        (ZeroDivisionError("why"), "f raises ZeroDivisionError: why"),
    ],
)
def test_a_function_returns_an_error_and_its_bound(result: Any, message: str) -> None:
    def function(actual: Any, expected: Any) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    problem = compare_by_function(function, "f", EXPECTED, EXPECTED).problem
    assert problem.startswith(message) if message else not problem


def test_rows_are_matched_even_if_the_nearest_is_taken() -> None:
    # Row 0 suits both targets, row 1 only the first one.
    costs = np.array([[0.1, 0.5], [0.2, 9.0]])
    assert match_rows(costs).tolist() == [1, 0]
    # Without a partner, the nearest row is compared.
    assert match_rows(np.array([[9.0, 5.0], [7.0, 8.0]])).tolist() == [1, 0]


# --- through the comparison of samples ------------------------------------------------------------


def draw(seed: int, shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def parity(context: CheckedFile, *outputs: Any) -> CheckResult:
    names = [output.name for output in context.spec.outputs]
    session = ConstantSession(*outputs, names=names)
    return compare_samples("parity", context.reference.samples, context, session, "cpu")


def test_rows_are_ordered_inside_of_each_batch(tmp_path: Path) -> None:
    output = value(Output, "y", "batch, 5, 4", compare=Comparator(rows="unordered"))
    expected = draw(3, (2, 5, 4))
    sample = write(tmp_path, 0, [draw(0, (2, 3))], [expected])
    spec = contract(outputs=(output,))
    context = make_subject(tmp_path, spec=spec, reference=make_reference(sample))
    mixed = np.stack([expected[0][[4, 3, 2, 1, 0]], expected[1][[1, 0, 2, 3, 4]]])
    assert parity(context, mixed).status is Status.PASS
    assert parity(context, mixed[::-1]).status is Status.FAIL


def make_output(folder: Path, compare: Comparator, *arrays: Any, **fields: Any) -> CheckedFile:
    """Return a contract with one output; the first array is the declared one."""
    shape = arrays[0].shape
    output = value(Output, "y", f"batch, {shape[1]}", compare=compare)
    first, *others = [
        write(folder, index, [draw(index, (2, 3))], [array]) for index, array in enumerate(arrays)
    ]
    samples = (first, *(as_kind(each, "values", f"other {each.index}") for each in others))
    spec = contract(outputs=(output,), **fields)
    return make_subject(folder, spec=spec, reference=make_reference(*samples))


def power(context: CheckedFile) -> CheckResult:
    return check_power(context, ConstantSession(), "cpu")


FUNCTIONS = """
import numpy as np

def strict(actual, expected):
    return float(abs(actual - expected).max()), 1e-3

def blind(actual, expected):
    return 0.0, 1.0

def counts(actual, expected):
    return abs(len(actual) - len(expected)), 1
"""


def test_a_function_of_the_project_compares(tmp_path: Path) -> None:
    (tmp_path / "compare_here.py").write_text(FUNCTIONS, encoding="utf-8")
    arrays = draw(1, (2, 9)), draw(2, (2, 9))
    for name, expected in (("strict", Status.PASS), ("blind", Status.INCONCLUSIVE)):
        compare = Comparator(call=f"{tmp_path}/compare_here.py:{name}")
        context = make_output(tmp_path / name, compare, *arrays)
        assert power(context).status is expected
    one = context.reference.samples[:1]
    compare = Comparator(call=f"{tmp_path}/compare_here.py:strict")
    strict = make_output(tmp_path / "again", compare, *arrays)
    wrong = compare_samples("parity", one, strict, ConstantSession(arrays[1]), "cpu")
    assert "compare_here.py:strict, the bound is 0.001" in wrong.message
    compare = Comparator(call=f"{tmp_path}/missing.py:strict")
    missing = make_output(tmp_path / "missing", compare, *arrays)
    result = compare_samples("parity", one, missing, ConstantSession(arrays[0]), "cpu")
    assert "missing.py:strict raises TypeError: cannot be loaded" in result.message


def test_a_function_receives_other_counts_of_a_free_axis(tmp_path: Path) -> None:
    (tmp_path / "compare_counts.py").write_text(FUNCTIONS, encoding="utf-8")
    compare = Comparator(call=f"{tmp_path}/compare_counts.py:counts")
    sample = write(tmp_path, 0, [draw(0, (2, 3))], [draw(1, (5, 4))])
    for shape, axis in (("found, 4", "found"), ("batch, 4", "other")):
        output = value(Output, "y", shape, compare=compare)
        axes = (BATCH, Axis(name=axis, example=None))
        spec = contract(outputs=(output,), axes=axes)
        context = make_subject(tmp_path, spec=spec, reference=make_reference(sample))
        result = parity(context, draw(1, (4, 4)))
        assert result.status is (Status.PASS if axis == "found" else Status.FAIL)


@pytest.mark.parametrize("compare", [Comparator(cosine=0.9), Comparator(sqnr=10)])
def test_nan_is_wrong_for_every_comparator(compare: Comparator, tmp_path: Path) -> None:
    declared = draw(1, (2, 9))
    context = make_output(tmp_path, compare, declared)
    broken = declared.copy()
    broken[0, 0] = np.nan
    assert "NaN or Inf differ" in parity(context, broken).message


def test_the_error_of_a_comparator_is_a_figure_of_drift(tmp_path: Path) -> None:
    declared = draw(1, (2, 9))
    context = make_output(tmp_path, Comparator(sqnr=20), declared, tolerance=Tolerance())
    result = parity(context, declared * np.float32(1.05))
    assert result.status is Status.PASS
    assert 0.4 < float(result.metrics["of_limit"]) < 0.8
