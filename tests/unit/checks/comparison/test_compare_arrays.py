from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from exporter.checks.comparison import compare_arrays as comparison
from exporter.checks.comparison.compare_arrays import Comparison, compare_arrays, measure_scale
from exporter.checks.comparison.tolerance import Limit

BFLOAT16 = tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)
FLOATS = ["float16", BFLOAT16, "float32", "float64", "complex64", "complex128"]
INTEGERS = ["int8", "uint8", "int32", "int64", "uint64", "bool"]
NAN, INF = np.nan, np.inf


def limit(atol: float = 0.0, rtol: float = 0.0, outside: float = 0.0, **fields: Any) -> Limit:
    return Limit(atol=atol, rtol=rtol, outside=outside, reason="by hand", **fields)


def compare(actual: Any, expected: Any, bound: Limit | None = None, **fields: Any) -> Comparison:
    """Compare with PyTorch's own outputs as the reference."""
    return compare_arrays(actual, expected, bound or limit(), fields.get("exact", expected))


def required_atol(result: Comparison) -> float:
    assert result.required is not None
    return result.required.atol


def floats(*values: float, dtype: Any = np.float32) -> Any:
    return np.array(values).astype(dtype)


# --- equal values ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3)])
def test_equal_floats_pass_without_any_tolerance(dtype: Any, shape: tuple[int, ...]) -> None:
    array = np.full(shape, 1.5).astype(dtype)
    result = compare(array, array.copy())
    assert (result.problem, result.max_abs, result.limit_ratio) == ("", 0.0, 0.0)


@pytest.mark.parametrize("dtype", [*INTEGERS, "U3"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_equal_integers_pass(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.ones(shape).astype(dtype)
    assert compare_arrays(array, array.copy(), None, array) == Comparison()


# --- kind and shape -------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["float64", "float16", BFLOAT16, "int32", "bool"])
def test_another_dtype_fails_even_with_equal_values(other: Any) -> None:
    array = floats(0.0, 1.0)
    result = compare(array.astype(other), array, limit(atol=INF))
    assert result.problem == f"{np.dtype(other).name}, PyTorch gives float32"
    assert result.limit_ratio == INF


@pytest.mark.parametrize("shape", [(6,), (3, 2), (1, 2, 3), (2, 3, 1), (1, 1), (2, 2), (0, 3)])
def test_another_shape_fails_even_if_it_broadcasts(shape: tuple[int, ...]) -> None:
    result = compare(np.ones(shape, np.float32), np.ones((2, 3), np.float32), limit(atol=INF))
    assert result.problem == f"shape {list(shape)}, PyTorch gives [2, 3]"


@pytest.mark.parametrize("thing", [[1.0], None, {"y": 1}, 1.0, np.float32(1)])
def test_another_type_than_a_tensor_fails(thing: object) -> None:
    result = compare(thing, floats(1.0), limit(atol=INF))
    assert result.problem == f"no tensor but a {type(thing).__name__}"


# --- NaN and Inf ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", BFLOAT16, "float32", "float64"])
@pytest.mark.parametrize("one", [NAN, INF, -INF, 1.0])
@pytest.mark.parametrize("other", [NAN, INF, -INF, 1.0])
def test_nan_and_inf_equal_only_themselves(dtype: Any, one: float, other: float) -> None:
    same = one == other or (np.isnan(one) and np.isnan(other))
    result = compare(
        floats(0.0, one, dtype=dtype), floats(0.0, other, dtype=dtype), limit(INF, 0.0, 0.9)
    )
    assert bool(result.problem) is not same
    if not same:
        assert result.problem.startswith(
            "NaN or Inf differ in 1 of 2 elements, first at [1] (file "
        )


@pytest.mark.parametrize(
    ("actual", "expected", "bound", "problem"),
    [
        (
            np.float32([[0, 0, INF]]),
            np.float32([[0, 0, -INF]]),
            limit(),
            "NaN or Inf differ in 1 of 3 elements, first at [0, 2] (file inf, PyTorch -inf)",
        ),
        (np.complex64([1, complex(1, NAN)]), np.ones(2, np.complex64), limit(INF), "first at [1]"),
        # Numbers next to equal NaN are compared, and only numbers count for the share.
        (floats(NAN, INF, 1.0), floats(NAN, INF, 2.0), limit(0.5), "error 1.00e+00 at [2]"),
        (floats(9, 0, NAN, NAN), floats(0, 0, NAN, NAN), limit(1.0, outside=0.25), "error 9"),
        (
            np.float32([[0, 0, 0, 0.5]]),
            np.float32([[0, 0, 0, 0.25]]),
            limit(0.001),
            "at [0, 3] (file 0.5, PyTorch 0.25), 250 times the bound 1.00e-03 (by hand)",
        ),
        (floats(1.0), floats(0.0), limit(), "the bound is 0.00e+00"),
        # `rtol` is relative to the expected value.
        (floats(2.0), floats(1.0), limit(rtol=0.6), "error 1.00e+00"),
        (floats(1.0), floats(2.0), limit(rtol=0.6), ""),
        (np.complex64([1 + 2j]), np.complex64([1 + 1j]), limit(0.5), "error 1.00e+00"),
        (np.complex64([1 + 2j]), np.complex64([1 + 1j]), limit(1.0), ""),
        # Half precision is compared in float64.
        (np.float16([6e4]), np.float16([-6e4]), limit(1e5), "error 1.20e+05"),
    ],
)
def test_the_problem_of_two_arrays(actual: Any, expected: Any, bound: Limit, problem: str) -> None:
    result = compare(actual, expected, bound)
    assert problem in result.problem
    assert bool(result.problem) is bool(problem)
    assert (result.limit_ratio > 1) is bool(problem)


# --- integers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_exact(dtype: str) -> None:
    actual, expected = np.zeros((2, 3)).astype(dtype), np.zeros((2, 3)).astype(dtype)
    actual[1, 0] = 1
    result = compare_arrays(actual, expected, None, expected)
    assert result.problem == (
        f"1 of 6 elements differ, first at [1, 0] (file {actual[1, 0]}, PyTorch {expected[0, 0]})"
    )
    assert result.max_abs == 1.0
    assert result.details["outside"] == 1 / 6


def test_integers_that_are_equal_as_floats_differ() -> None:
    expected = np.array([250, 3], np.uint8)
    assert compare_arrays(np.array([5, 3], np.uint8), expected, None, expected).max_abs == 245.0
    expected = np.array([2**62], np.int64)
    assert compare_arrays(expected + 1, expected, None, expected).problem != ""
    assert compare_arrays(np.array(["a"]), np.array(["b"]), None, expected).problem != ""


# --- tolerance ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_an_error_equal_to_the_limit_passes_and_a_larger_one_fails(dtype: Any) -> None:
    actual, expected = floats(1.0, 3.0, dtype=dtype), floats(1.0, 2.0, dtype=dtype)
    assert compare(actual, expected, limit(atol=1.0)).problem == ""
    assert compare(actual, expected, limit(rtol=0.5)).problem == ""
    assert compare(actual, expected, limit(atol=0.99)).problem != ""
    assert compare(actual, expected, limit(rtol=0.49)).problem != ""


@pytest.mark.parametrize(("share", "passes"), [(0.0, False), (0.24, False), (0.25, True)])
def test_a_share_of_elements_may_exceed_the_limit(share: float, passes: bool) -> None:
    result = compare(floats(9, 0, 0, 0), floats(0, 0, 0, 0), limit(atol=1.0, outside=share))
    assert (result.problem == "") is passes
    assert result.details["outside"] == 0.25


def test_all_figures_are_measured() -> None:
    expected = floats(*range(100))
    actual = expected.copy()
    actual[0], actual[50] = 1.0, 55.0
    result = compare(actual, expected, limit(atol=1.0, noise=0.5))
    assert (result.max_abs, result.limit_ratio, result.noise_ratio) == (5.0, 5.0, 10.0)
    details = result.details
    assert details["mean_abs"] == pytest.approx(0.06)
    assert details["p99_abs"] == pytest.approx(1.04)
    assert details["max_rel"] == pytest.approx(0.1), "the error where 0 is expected is not relative"
    assert details["mean_rel"] == pytest.approx(0.1 / 99)
    assert details["cosine"] == pytest.approx(328600 / np.sqrt(328350 * 328876))
    assert details["worst"] == "[50]: file 55, PyTorch 50"
    assert required_atol(result) == 5.0
    assert details["sqnr_db"] == pytest.approx(10 * np.log10(328350 / 26))


def test_the_required_atol_is_added_to_rtol() -> None:
    result = compare(floats(14.0), floats(10.0), limit(atol=1.0, rtol=0.1))
    assert required_atol(result) == pytest.approx(3.0)


# --- float64 as the reference ---------------------------------------------------------------------


def test_the_error_is_the_distance_from_float64() -> None:
    expected, exact = floats(1.0, 2.0), np.array([1.25, 2.0])
    assert compare(expected, expected, limit(atol=0.3), exact=exact).max_abs == 0.25
    assert compare(expected, expected, limit(atol=0.2), exact=exact).problem != ""


@pytest.mark.parametrize(
    ("pytorch", "float64", "other", "atol"),
    [(INF, 1e39, 1.0, INF), (2.0, NAN, 3.0, 0.5), (2.0, INF, 3.0, 0.5), (2.0, -INF, 3.0, 0.5)],
    ids=["overflow of the declared dtype", "NaN in float64", "Inf in float64", "-Inf in float64"],
)
def test_pytorchs_value_replaces_one_that_cannot_be_compared(
    pytorch: float, float64: float, other: float, atol: float
) -> None:
    expected, exact = floats(pytorch, 1.0), np.array([float64, 1.0])
    assert compare(expected.copy(), expected, exact=exact).problem == ""
    assert compare(floats(other, 1.0), expected, limit(atol=atol), exact=exact).problem != ""


# --- properties -----------------------------------------------------------------------------------

ELEMENTS = st.floats(-1e6, 1e6, width=32)
PAIRS = arrays.array_shapes(min_dims=0, max_dims=3, max_side=4).flatmap(
    lambda shape: st.tuples(
        arrays.arrays(np.float32, shape, elements=ELEMENTS),
        arrays.arrays(np.float32, shape, elements=ELEMENTS),
    )
)


@settings(max_examples=50)
@given(PAIRS, st.floats(0, 1e6), st.floats(0, 1))
def test_the_result_is_equal_to_numpys(pair: Any, atol: float, rtol: float) -> None:
    actual, expected = (array.astype(np.float64) for array in pair)
    allowed = atol + rtol * np.abs(expected)
    passes = not (np.abs(actual - expected) > allowed).any()
    assert (compare(actual, expected, limit(atol, rtol)).problem == "") is passes


@settings(max_examples=50)
@given(PAIRS, st.floats(0, 0.99))
def test_the_required_atol_passes_and_a_smaller_one_fails(pair: Any, outside: float) -> None:
    actual, expected = pair
    needed_atol = required_atol(compare(actual, expected, limit(outside=outside)))
    assert compare(actual, expected, limit(needed_atol, outside=outside)).problem == ""
    assume(needed_atol > 0)
    less = float(np.nextafter(needed_atol, 0))
    assert compare(actual, expected, limit(less, outside=outside)).problem != ""


# --- mask values ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ((), 0.0),
        ((0.0, -0.0), 0.0),
        ((1.0, -3.0), 3.0),
        ((NAN, INF), 0.0),
        ((NAN, -INF, 2), 2.0),
        ((3.0, -1e9, -1e9, 0.5), 3.0),
        ((3.0, -2.0, -1e4), 3.0),
        ((-3.4028235e38, 7.0), 7.0),
        # No gap of a thousand between large and small values, or no large value.
        ((1e5, 1e3, 3.0), 1e5),
        ((9e3, 1.0), 9e3),
        ((-1e9, -1e9, 0.0), 1e9),
        ((0.0, NAN, INF), 0.0),
    ],
)
def test_the_scale_is_of_numbers_and_excludes_mask_values(
    values: tuple[float, ...], scale: float
) -> None:
    assert measure_scale(floats(*values)) == pytest.approx(scale)
    assert measure_scale(np.array([True, False])) == 1.0


def test_only_a_measured_limit_grows_with_values_beyond_the_scale() -> None:
    expected = floats(-1e9, 3.0)
    bound = limit(1e-6, scale=3.0)
    assert compare(floats(-1e9 + 128, 3.0), expected, bound).problem == ""
    assert "[0]" in compare(floats(-1e9 + 1024, 3.0), expected, bound).problem
    assert "[1]" in compare(floats(-1e9, 3.001), expected, bound).problem
    assert compare(floats(-1e9 + 128), floats(-1e9), limit(1e-6)).problem


# --- the quick comparison -------------------------------------------------------------------------

SHAPES = arrays.array_shapes(max_dims=2, max_side=4)


@given(
    data=st.data(),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    atol=st.sampled_from([0.0, 0.5, 2.0, INF]),
    scale=st.sampled_from([0.5, 3.0, INF]),
    noise=st.sampled_from([None, 0.25]),
    is_exact=st.booleans(),
)
def test_the_quick_comparison_is_equal_to_the_full_one(
    data: st.DataObject,
    dtype: str,
    atol: float,
    scale: float,
    noise: float | None,
    is_exact: bool,
) -> None:
    values = st.sampled_from([0.0, 1.0, -1.5, 2.25, 4.0, NAN, INF, -INF])
    one = st.floats(-1.0, 1.0, width=16)
    expected = data.draw(arrays.arrays(dtype, SHAPES, elements=values | one))
    other = data.draw(arrays.arrays(dtype, expected.shape, elements=values | one))
    with np.errstate(all="ignore"):
        actual = data.draw(st.sampled_from([expected.copy(), other, expected + other]))
    exact = expected.astype("float64") + 0.125 if is_exact else expected
    bound = limit(atol, scale=scale, noise=noise)
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        quick = compare_arrays(actual, expected, bound, exact)
        patch.setattr(comparison, "_pass_quickly", lambda *_: None)
        assert quick == compare_arrays(actual, expected, bound, exact)


def test_the_quick_comparison_is_used() -> None:
    array = np.linspace(-1, 1, 100_000, dtype=np.float32)
    result = comparison._pass_quickly(array + np.float32(1e-3), array, limit(0.01), array)
    assert result is not None
    assert result.max_abs == pytest.approx(1e-3, rel=1e-3)
    assert comparison._pass_quickly(array + np.float32(0.02), array, limit(0.01), array) is None


@given(arrays.arrays("float32", SHAPES, elements=st.floats(width=32)))
def test_a_scale_is_at_most_the_largest_number(array: Any) -> None:
    finite = np.abs(array[np.isfinite(array)].astype(np.float64))
    assert measure_scale(array) <= (finite.max() if finite.size else 0.0)
    if finite.size and finite.max() < 1e4:
        assert measure_scale(array) == finite.max()
