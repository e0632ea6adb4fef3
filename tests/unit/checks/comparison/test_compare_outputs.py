"""Outputs of the file against those of PyTorch: sequences, small slices and indices of ties."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.checks.comparison.compare_arrays import Comparison, compare_arrays
from exporter.checks.comparison.compare_outputs import (
    are_ties,
    compare_output,
    compare_small_slices,
)
from exporter.checks.comparison.compare_samples import find_undeclared_outputs
from exporter.checks.comparison.tolerance import ComparedOutput, Limit
from exporter.checks.protocol import (
    CheckedFile,
    DamagedSample,
    SampleData,
    SelectionData,
    read_sample,
    write_sample,
    write_ties,
)
from exporter.checks.sample_checks import check_parity
from exporter.jobs import JobFolder
from exporter.manifest import Output
from exporter.records.record import CheckResult, Status
from exporter.runtimes.session import Array
from tests.unit.checks.contexts import (
    ConstantSession,
    contract,
    draw,
    make_reference,
    make_subject,
    value,
    write,
)

ROWS = Output(name="rows", shape=("n",), kind="sequence")


FIVE = [np.float32([1, 2]), np.float32([3e-3, 4e-3]), np.float32([5, 6])]


def subject(folder: Path, *items: Any, dtype: str = "float32", **fields: Any) -> CheckedFile:
    """Return a contract of one list with PyTorch's outputs."""
    output = ROWS.model_copy(update={"dtype": dtype})
    exact = [[item.astype(np.float64) for item in items]] if "noise" in fields else []
    x = np.zeros((2, 3), np.float32)
    sample = write(folder, 0, [x], [list(items)], exact=exact)
    reference = make_reference(sample, **fields)
    return make_subject(folder, spec=contract(outputs=(output,)), reference=reference)


def check(context: CheckedFile, outputs: object) -> CheckResult:
    return check_parity(context, ConstantSession(outputs, names=("rows",)), "cpu")


def test_the_same_items_pass(tmp_path: Path) -> None:
    result = check(subject(tmp_path, *FIVE), [item.copy() for item in FIVE])
    assert (result.status, result.message) == (Status.PASS, "")
    assert result.metrics["max_abs"] == 0.0


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (FIVE[:2], "output 'rows': 2 items, PyTorch gives 3"),
        ([*FIVE, FIVE[0]], "output 'rows': 4 items, PyTorch gives 3"),
        (FIVE[:1], "output 'rows': 1 item, PyTorch gives 3"),
        ([], "output 'rows': 0 items, PyTorch gives 3"),
        (np.stack(FIVE), "output 'rows': no sequence but a ndarray"),
        ([FIVE[0], FIVE[2], FIVE[1]], "item 1 of output 'rows': error"),
        ([FIVE[0], FIVE[1] + np.float32(1e-5), FIVE[2]], "item 1 of output 'rows': error 1.00e-05"),
        ([FIVE[0], FIVE[1].astype(np.float64), FIVE[2]], "item 1 of output 'rows': float64, PyT"),
        ([FIVE[0][:1], *FIVE[1:]], "item 0 of output 'rows': shape [1], PyTorch gives [2]"),
        ([*FIVE[:2], np.float32([5, np.nan])], "item 2 of output 'rows': NaN or Inf differ"),
        ([*FIVE[:2], [1.0]], "item 2 of output 'rows': no tensor but a list"),
    ],
)
def test_the_problem_names_the_item(outputs: object, message: str, tmp_path: Path) -> None:
    result = check(subject(tmp_path, *FIVE, noise=(1e-7,)), outputs)
    assert result.status is Status.FAIL
    assert result.message.startswith(message)


def test_integers_are_equal_in_each_item(tmp_path: Path) -> None:
    items = [np.int64([1, 2]), np.int64([3])]
    context = subject(tmp_path, *items, dtype="int64")
    assert check(context, items).status is Status.PASS
    wrong = check(context, [items[0], np.int64([4])])
    assert "item 1 of output 'rows': 1 of 1 elements differ" in wrong.message


def test_an_empty_list_is_a_list(tmp_path: Path) -> None:
    context = subject(tmp_path)
    assert check(context, []).status is Status.PASS
    assert check(context, [FIVE[0]]).message == "output 'rows': 1 item, PyTorch gives 0"


def test_each_item_has_the_limit_of_its_own_size(tmp_path: Path) -> None:
    context = subject(tmp_path, *FIVE, noise=(1e-6,))
    data = read_sample(context.folder.sample(0), context.spec)
    near = [item * np.float32(1 + 1e-6) for item in FIVE]
    result = list(compare_output(near, data, ComparedOutput(context, 0, "cpu")))
    assert [label for label, _ in result] == [
        f"item {index} of output 'rows'" for index in range(3)
    ]
    assert not any(comparison.problem for _, comparison in result)
    assert max(c.limit_ratio for _, c in result) < 2 * min(c.limit_ratio for _, c in result)


def test_a_sequence_file_with_a_tensor_is_damaged(tmp_path: Path) -> None:
    context = subject(tmp_path, *FIVE)
    folder = context.folder.sample(0)
    write_sample(folder, [np.zeros((2, 3), np.float32)], [np.stack(FIVE)])
    with pytest.raises(DamagedSample, match=r"output_0.pb cannot be read"):
        read_sample(folder, context.spec)


@pytest.mark.parametrize(
    ("outputs", "values", "expected"),
    [
        ((ROWS,), (FIVE,), []),
        ((ROWS,), ([FIVE[0], FIVE[1][:1]],), []),
        ((ROWS.model_copy(update={"shape": (2,)}),), (FIVE,), []),
        ((ROWS, ROWS), (FIVE,), ["2 outputs are declared, PyTorch gives 1"]),
        (
            (ROWS.model_copy(update={"shape": ("batch",)}),),
            ([FIVE[0], FIVE[1][:1]],),
            ["item 1 of output 'rows' is declared [batch] with batch=2, PyTorch gives [1]"],
        ),
        (
            (ROWS, Output(name="y", shape=("n",))),
            (FIVE, FIVE[0][:1]),
            [
                f"item {index} of output 'rows' is declared [n] with n=1, PyTorch gives [2]"
                for index in range(3)
            ],
        ),
        (
            (ROWS.model_copy(update={"shape": ("k", "k")}),),
            ([np.zeros((2, 2), np.float32), np.zeros((2, 3), np.float32)],),
            ["item 1 of output 'rows' is declared [k, k] with k=2, PyTorch gives [2, 3]"],
        ),
        (
            (ROWS,),
            ([FIVE[0].astype(np.float64)],),
            ["item 0 of output 'rows' is declared float32, PyTorch gives float64"],
        ),
    ],
)
def test_items_are_compared_with_their_declared_sizes(
    outputs: tuple[Output, ...], values: tuple[Any, ...], expected: list[str]
) -> None:
    assert list(find_undeclared_outputs(outputs, values, {"batch": 2})) == expected


def test_the_limit_is_smaller_if_a_sample_has_no_float64_outputs(tmp_path: Path) -> None:
    context = subject(tmp_path, *FIVE, noise=(1e-3,))
    data = SampleData(inputs={}, outputs=(FIVE,), float64_outputs=(None,))
    near = [item + np.float32(1e-4) for item in FIVE]
    shares = [
        max(
            c.limit_ratio
            for _, c in compare_output(near, data, ComparedOutput(context, 0, "cpu", is_exact))
        )
        for is_exact in (True, False)
    ]
    assert shares[0] != shares[1]


def test_an_overflow_is_reported_with_a_mismatch_of_inf(tmp_path: Path) -> None:
    overflow = "float16 overflows in PyTorch: 1 of 6 elements"
    context = subject(tmp_path, *FIVE[:2], np.float32([5, np.inf]), overflow=(overflow,))
    result = check(context, FIVE)
    assert result.message.startswith("item 2 of output 'rows': NaN or Inf differ in 1 of 2")
    assert result.message.endswith(overflow)
    off = [FIVE[0] + 1, FIVE[1], np.float32([5, np.inf])]
    assert overflow not in check(context, off).message


def make_table(rows: int = 50, large: float = 1e5) -> Array:
    values = np.random.default_rng(0).normal(size=(rows, 2))
    return values * [large, 1.0]


def add_noise(exact: Array, noise: float) -> Array:
    """Return PyTorch's values with this error in column 1."""
    expected = exact.copy()
    expected[:, 1] += noise * (-1.0) ** np.arange(len(exact))
    return expected


def compare(
    actual: Array, exact: Array, expected: Array | None = None, large: float = 1e5
) -> Comparison:
    """Compare with the bound of the whole array, whose largest values are near `large`."""
    expected = exact if expected is None else expected
    limit = Limit(atol=1e-6 * large, scale=float(np.abs(exact).max()), reason="measured")
    actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    passed = compare_arrays(actual, expected, limit, exact)
    assert not passed.problem
    return compare_small_slices(passed, actual, expected, exact, limit)


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
    wrong = exact + np.array([0.0, 1e-3])
    assert not compare(wrong, exact, add_noise(exact, noise)).problem


def test_a_multiple_of_pytorchs_error_is_allowed() -> None:
    exact = make_table()
    expected = add_noise(exact, 2e-6)
    assert not compare(exact + np.array([0.0, 1e-5]), exact, expected).problem
    assert compare(exact + np.array([0.0, 1e-4]), exact, expected).problem


def test_numbers_without_a_finite_scale_are_not_compared_again() -> None:
    exact = make_table()
    exact[0, 1] = np.inf
    assert not compare(exact, exact).problem


@pytest.mark.parametrize(("shape", "axis"), [((9, 4), 0), ((9, 5, 4), 0), ((3, 5, 4, 4), 1)])
def test_an_error_of_a_small_row_or_channel_fails(shape: tuple[int, ...], axis: int) -> None:
    exact = np.random.default_rng(0).normal(size=shape)
    np.moveaxis(exact, axis, 0)[1] *= 1e4
    wrong = exact.copy()
    np.moveaxis(wrong, axis, 0)[2] += 1e-5
    problem = compare(wrong, exact, large=1e4).problem
    assert f"in slice 2 of axis {axis}" in problem
    assert not compare(exact, exact, large=1e4).problem
    np.moveaxis(wrong, axis, 0)[1] += 1e-3
    np.moveaxis(wrong, axis, 0)[2] -= 1e-5
    assert not compare(wrong, exact, large=1e4).problem


def test_a_lucky_slice_has_the_error_of_the_others() -> None:
    exact = np.random.default_rng(0).normal(size=(20, 8))
    exact[0] *= 1e4
    expected = exact.copy()
    expected[3:] *= 1 + 3e-6
    wrong = exact.copy()
    wrong[1] *= 1 + 2e-5
    assert not compare(wrong, exact, expected, large=1e4).problem


KEYS = np.array([[1.0, 3.0, 3.0, 3.0 + 1e-6, 2.0], [5.0, 5.0, 5.0, 4.0, 4.0]])


def make_selection(**changes: Any) -> SelectionData:
    """Return the values from which two indices of each row select."""
    fields: dict[str, Any] = {
        "keys": KEYS,
        "rows": np.array([[0, 0], [1, 1]]),
        "exact": np.zeros(KEYS.shape, bool),
        "margin": 0.0,
        "is_first_promised": False,
    }
    return SelectionData(**{**fields, **changes})


EXPECTED = np.array([[1, 2], [0, 1]])


EXACT = np.ones(KEYS.shape, bool)


@pytest.mark.parametrize(
    ("actual", "changes", "expected"),
    [
        ([[1, 2], [0, 1]], {}, True),
        ([[2, 1], [2, 0]], {}, True),
        # Values that were rounded on their own differ by a few units, exact ones do not.
        ([[3, 1], [0, 1]], {}, True),
        ([[3, 1], [0, 1]], {"exact": EXACT}, False),
        ([[2, 1], [0, 1]], {"exact": EXACT}, True),
        # PyTorch promises the first of exact values.
        ([[2, 1], [0, 1]], {"exact": EXACT, "is_first_promised": True}, False),
        ([[2, 1], [0, 1]], {"is_first_promised": True}, True),
        # Another value, even if it is near.
        ([[4, 1], [0, 1]], {}, False),
        ([[4, 1], [0, 1]], {"margin": 0.5}, False),
        ([[4, 1], [0, 1]], {"margin": 1.5}, True),
        ([[1, 2], [0, 3]], {}, False),
        # An index that repeats, or that is no index.
        ([[1, 1], [0, 1]], {}, False),
        ([[1, 2], [0, 5]], {}, False),
        ([[1, -4], [0, 1]], {}, False),
    ],
)
def test_an_index_is_right_if_it_selects_an_equal_value(
    actual: list[list[int]], changes: dict[str, Any], *, expected: bool
) -> None:
    assert are_ties(np.array(actual), EXPECTED, make_selection(**changes)) is expected


def test_another_shape_or_dtype_is_no_tie() -> None:
    assert not are_ties(EXPECTED[:1], EXPECTED, make_selection())
    assert not are_ties(EXPECTED.astype(np.int32), EXPECTED, make_selection())


def test_a_nan_is_equal_to_no_value() -> None:
    keys = np.where(KEYS == 3, np.nan, KEYS)
    assert not are_ties(np.array([[2, 1], [0, 1]]), EXPECTED, make_selection(keys=keys))


@pytest.mark.parametrize(
    ("actual", "status", "is_tied"),
    [
        (EXPECTED, Status.PASS, False),
        (EXPECTED[:, ::-1].copy(), Status.PASS, True),
        (np.array([[1, 2], [2, 1]]), Status.PASS, True),
        (np.array([[1, 4], [0, 1]]), Status.FAIL, False),
    ],
)
def test_the_check_accepts_ties_and_counts_them(
    actual: Any, status: Status, is_tied: bool, tmp_path: Path
) -> None:
    pytorch = np.array([[1, 2], [0, 1]])
    sample = write(tmp_path, 0, [draw(2)], [pytorch])
    write_ties(JobFolder(tmp_path).sample(0), [EXPECTED], [make_selection()])
    spec = contract(outputs=(value(Output, "y", "batch, 2", "int64"),))
    context = make_subject(tmp_path, spec=spec, reference=make_reference(sample))
    result = check_parity(context, ConstantSession(actual), "cpu")
    assert result.status is status
    assert result.metrics.get("tied_samples", 0) == int(is_tied)


def test_other_values_follow_the_order_of_ties(tmp_path: Path) -> None:
    """Values at tied indices are right in PyTorch's order and in that of ONNX, and in no other."""
    x = draw(2)
    sample = write(tmp_path, 0, [x], [x])
    write_ties(JobFolder(tmp_path).sample(0), [x[:, ::-1].copy()], [None])
    context = make_subject(tmp_path, reference=make_reference(sample))
    for output, status in ((x, Status.PASS), (x[:, ::-1], Status.PASS), (x[::-1], Status.FAIL)):
        result = check_parity(context, ConstantSession(np.ascontiguousarray(output)), "cpu")
        assert result.status is status
