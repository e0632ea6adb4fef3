from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from exporter.checks.comparison.compare_arrays import compare_arrays, measure_scale
from exporter.checks.comparison.tolerance import (
    ComparedOutput,
    Limit,
    compute_limit,
    compute_limit_without_float64,
    is_float,
    is_limit_measured,
)
from exporter.checks.protocol import CheckedFile
from exporter.checks.sample_checks import select_samples
from exporter.jobs import JobFolder, Sample
from exporter.manifest import Bound, Output, Tolerance, select_bound
from tests.unit.checks.contexts import contract, make_reference, value

SAMPLE = Sample(index=0, name="declared", kind="declared", axes={"batch": 16}, scales=(1.0,))
ZERO = SAMPLE.model_copy(update={"scales": (0.0,)})
FLOAT32 = 2.0**-23
#: The largest value of the outputs in a few tests.
SCALE = 4.0


def subject(
    noise: float | None,
    *,
    dtype: str = "float32",
    shape: str = "batch, 3",
    model: Tolerance | None = None,
    output: Tolerance | None = None,
    samples: tuple[Sample, ...] = (SAMPLE,),
) -> CheckedFile:
    outputs = (value(Output, "y", shape, dtype, tolerance=output),)
    return CheckedFile(
        folder=JobFolder(Path()),
        opset=18,
        spec=contract(outputs=outputs, tolerance=model or Tolerance()),
        reference=make_reference(*samples, noise=(noise,)),
    )


def limit_of(
    scale: float, noise: float | None, device: str = "cpu", exact: bool = True, **fields: Any
) -> Limit:
    return compute_limit(ComparedOutput(subject(noise, **fields), 0, device), scale, exact=exact)


# --- measured -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "scale", "least"),
    [
        (1.0, 1e-16, 8 * FLOAT32),
        (1e-9, 1e-16, 8e-9 * FLOAT32),
        (1e4, 1e-3, 8 * FLOAT32),
        (1e-3, 1.0, 8 * FLOAT32),
    ],
)
@pytest.mark.parametrize("noise", [1e-9, None])
def test_no_bound_below_the_rounding_of_the_declared_scale(
    declared: float, scale: float, least: float, noise: float | None
) -> None:
    sample = SAMPLE.model_copy(update={"scales": (declared,)})
    limit = limit_of(scale, noise, samples=(sample,))
    assert limit.atol >= least * 0.999
    if noise is not None:
        assert limit.atol == pytest.approx(least)


@pytest.mark.parametrize(
    ("noise", "fields", "expected", "reason"),
    [
        (1e-5, {}, (8e-5, 0, 0), "8 x PyTorch's own float32 noise"),
        (1e-5, {"noise": 20.0}, (2e-4, 0, 0), "20 x PyTorch's own float32 noise"),
        # A tiny factor does not go below the floor.
        (1e-5, {"noise": 1e-9}, (8 * FLOAT32, 0, 0), ""),
        (1e-5, {"outside": 0.1}, (8e-5, 0, 0.1), ""),
        (
            1e-5,
            {"atol": 1e-9, "rtol": 0.0},
            (1e-9 / SCALE, 0, 0),
            "rtol 0 from the manifest, below PyTorch's own noise of ",
        ),
        (
            1e-9,
            {"atol": 1e-3, "rtol": 1e-2, "outside": 0.5},
            (1e-3 / SCALE, 1e-2, 0.5),
            "atol 0.001, rtol 0.01 from the manifest",
        ),
        (1e-3, {"atol": 1e-3}, (1e-3 / SCALE, 0, 0), ""),
        (1e-3, {"rtol": 1e-2}, (0, 1e-2, 0), ""),
        (1e-3, {"atol": 0.0}, (0, 0, 0), ""),
    ],
)
def test_the_limit_of_a_tolerance(
    noise: float, fields: dict[str, float], expected: tuple[float, ...], reason: str
) -> None:
    """`expected` is atol at the scale 1, rtol and the share outside."""
    limit = limit_of(SCALE, noise, model=Tolerance(**fields))
    assert (limit.atol / SCALE, limit.rtol, limit.outside) == pytest.approx(expected)
    assert limit.noise == pytest.approx(SCALE * noise)
    assert reason in limit.reason


def test_limits_without_a_measurement() -> None:
    # A bound of the manifest may be below the rounding.
    assert limit_of(1e-16, 1e-9, model=Tolerance(atol=1e-12)).atol == 1e-12
    assert limit_of(1.0, 1e-3, exact=False).atol == pytest.approx(1e-5)
    unknown_step = limit_of(1.0, None, model=Tolerance(steps=1.0))
    assert unknown_step.allowed_error(1.0) == 0.0


@pytest.mark.parametrize(
    ("dtype", "places"),
    [
        ("float16", 2 * 2.0**-10),
        ("bfloat16", 2 * 2.0**-7),
        ("float32", 8 * 2.0**-23),
        ("float64", 8 * 2.0**-52),
    ],
)
def test_the_floor_is_a_few_units_in_the_last_place(dtype: str, places: float) -> None:
    limit = limit_of(5.0, 0.0, dtype=dtype)
    assert limit.atol == pytest.approx(5 * places, abs=0)
    assert "units in " in limit.reason
    assert dtype in limit.reason


@pytest.mark.parametrize(
    ("shape", "batch", "few"),
    [
        ("", 2, True),
        ("batch", 31, True),
        ("batch", 32, False),
        ("4, 8", 2, False),
        ("3, n", 5, True),
    ],
)
def test_few_elements_have_a_larger_limit(shape: str, batch: int, few: bool) -> None:
    """One error may be small by luck: a correct file would be red once in thirteen models."""
    sample = SAMPLE.model_copy(update={"axes": {"batch": batch}})
    limit = limit_of(2.0, 1e-9, shape=shape, samples=(sample,))
    assert limit.atol == pytest.approx(2 * (1.13e-5 if few else 8 * FLOAT32))
    assert ("elements are few" in limit.reason) is few
    assert limit_of(1.0, 1e-4, shape=shape, samples=(sample,)).atol == pytest.approx(8e-4)


def test_a_short_proof_has_the_limit_of_the_full_one() -> None:
    """Its few samples have few elements, but the noise comes from all samples."""
    other = SAMPLE.model_copy(update={"kind": "values", "axes": {"batch": 20}})
    context = subject(1e-9, shape="batch", samples=(SAMPLE, *(other,) * 3))
    short = replace(context, is_short=True)
    assert len(select_samples("values", short)) == 1 < len(select_samples("values", context))
    assert compute_limit(ComparedOutput(short, 0, "cpu"), 2.0) == compute_limit(
        ComparedOutput(context, 0, "cpu"), 2.0
    )


def test_only_elements_of_samples_that_ran_count() -> None:
    enough = limit_of(1.0, 0.0, samples=(SAMPLE,) * 8, shape="4")
    failed = SAMPLE.model_copy(update={"error": "refused"})
    assert enough.atol < limit_of(1.0, 0.0, samples=(SAMPLE,) * 7 + (failed,), shape="4").atol


@pytest.mark.parametrize(
    ("dtype", "floor"),
    [
        ("float16", 2 * 2.0**-24),
        ("bfloat16", 2 * 2.0**-133),
        ("float32", 8 * 2.0**-149),
        ("float64", 8 * 2.0**-1074),
    ],
)
def test_tiny_outputs_have_a_floor_of_subnormal_numbers(dtype: str, floor: float) -> None:
    assert limit_of(floor, 0.0, dtype=dtype, samples=(ZERO,)).atol == floor
    assert 0 < limit_of(0.0, 0.0, dtype=dtype, samples=(ZERO,)).atol <= 8 * 2.0**-24


@settings(max_examples=50)
@given(
    arrays.arrays(np.float64, st.integers(1, 50), elements=st.floats(-1e30, 1e30)),
    st.sampled_from([np.float16, np.float32]),
)
def test_pytorch_itself_always_passes(exact: Any, dtype: Any) -> None:
    """For any outputs, a file with exactly PyTorch's outputs passes."""
    with np.errstate(over="ignore"):
        rounded = exact.astype(dtype)
    scale = measure_scale(exact)
    error = np.abs(rounded.astype(np.float64) - exact)
    noise = float(error[np.isfinite(error)].max(initial=0.0) / scale) if scale else 0.0
    limit = limit_of(scale, noise, dtype=np.dtype(dtype).name)
    assert compare_arrays(rounded, rounded, limit, exact).problem == ""


# --- without float64 ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "atol", "rtol"),
    [
        ("float16", 1e-5, 1e-3),
        ("bfloat16", 1e-5, 1.6e-2),
        ("float32", 1e-5, 1.3e-6),
        ("float64", 1e-7, 1e-7),
        ("complex64", 1e-5, 1.3e-6),
    ],
)
def test_the_defaults_of_torch_testing_at_the_scale(dtype: str, atol: float, rtol: float) -> None:
    limit = limit_of(30.0, None, dtype=dtype)
    assert (limit.atol, limit.rtol) == (pytest.approx(30 * atol), rtol)
    assert limit.noise is None
    assert limit.reason.startswith("torch.testing's default for")
    assert limit.allowed_error(30.0) == pytest.approx(30 * (atol + rtol))


# --- explicit -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noise", "fields", "is_measured"),
    [
        (1e-5, {}, True),
        (1e-5, {"model": Tolerance(noise=3.0)}, True),
        (None, {}, False),
        (1e-5, {"model": Tolerance(atol=1.0)}, False),
        (1e-5, {"output": Tolerance(rtol=1.0)}, False),
    ],
)
def test_an_explicit_limit_is_not_measured(
    noise: float | None, fields: dict[str, Any], is_measured: bool
) -> None:
    assert is_limit_measured(ComparedOutput(subject(noise, **fields), 0, "cpu")) is is_measured


@pytest.mark.parametrize(("is_usual", "atol"), [(True, 1e-6), (False, 9e-5)])
def test_an_explicit_limit_leaves_room_for_the_noise_of_special_values(
    *, is_usual: bool, atol: float
) -> None:
    context = subject(1e-5, model=Tolerance(atol=1e-6))
    limit = compute_limit(ComparedOutput(context, 0, "cpu", is_usual=is_usual), 1.0)
    assert limit.atol == pytest.approx(atol)


@pytest.mark.parametrize(("tolerance", "atol"), [(Tolerance(noise=8), 0.08), (Tolerance(), 1e-6)])
def test_a_declared_cancellation_has_the_same_rounding_in_small_outputs(
    tolerance: Tolerance, atol: float
) -> None:
    context = subject(None, model=tolerance)
    update = {"large_noise": (0.01,), "noise_scales": (1.0,)}
    context = replace(context, reference=context.reference.model_copy(update=update))
    limit = compute_limit(ComparedOutput(context, 0, "cpu"), 0.1)
    assert limit.atol == pytest.approx(atol)


#: From the most to the least specific.
KEYS = ("output device", "output dtype", "output", "model device", "model dtype", "model")


@pytest.mark.parametrize("first", range(len(KEYS)))
def test_the_most_specific_setting_applies(first: int) -> None:
    """The settings from `first` on are set, the more specific ones are not."""
    atols = {key: float(n + 1) for n, key in enumerate(KEYS) if n >= first}
    model, output = (_tolerance(side, atols) for side in ("model", "output"))
    assert limit_of(1.0, None, "cuda", model=model, output=output).atol == first + 1


def _tolerance(side: str, atols: dict[str, float]) -> Tolerance:
    return Tolerance(
        atol=atols.get(side),
        by_device={"cuda": Bound(atol=atols.get(f"{side} device"))},
        by_dtype={"float32": Bound(atol=atols.get(f"{side} dtype"))},
    )


def test_settings_for_other_devices_and_dtypes_are_ignored() -> None:
    other = Tolerance(by_device={"cuda": Bound(atol=1.0)}, by_dtype={"float16": Bound(atol=1.0)})
    context = subject(1e-5, model=other, output=other)
    assert select_bound(context.spec, context.spec.outputs[0], "cpu") == Bound()
    assert compute_limit(ComparedOutput(context, 0, "cpu"), 1.0).atol == pytest.approx(8e-5)


def test_a_more_specific_setting_replaces_all_fields() -> None:
    model = Tolerance(atol=1.0, rtol=1.0, outside=0.5, by_device={"cuda": Bound(rtol=0.25)})
    limit = limit_of(1.0, None, "cuda", model=model)
    assert (limit.atol, limit.rtol, limit.outside) == (0.0, 0.25, 0.0)


@pytest.mark.parametrize("key", [Bound(noise=2.0), Bound(outside=0.1), Bound(atol=0.0)])
def test_each_field_alone_is_a_setting(key: Bound) -> None:
    context = subject(1e-5, model=Tolerance(atol=1.0, by_device={"cuda": key}))
    assert select_bound(context.spec, context.spec.outputs[0], "cuda") == key


def test_only_floats_have_limits() -> None:
    assert all(map(is_float, ("float16", "bfloat16", "float32", "float64", "complex64")))
    assert not any(map(is_float, ("int8", "int64", "uint8", "bool", "str")))


def test_only_a_measured_limit_grows_beyond_the_scale() -> None:
    measured = limit_of(2.0, 1e-6)
    assert measured.allowed_error(200.0) == pytest.approx(100 * measured.allowed_error(2.0))
    assert measured.allowed_error(0.01) == measured.allowed_error(2.0)
    assert limit_of(2.0, 1e-6, model=Tolerance(atol=0.5)).allowed_error(200.0) == 0.5


# --- without float64 for this sample --------------------------------------------------------------


@given(
    factor=st.sampled_from([None, 0.5, 1.5, 8.0, 20.0]),
    part=st.floats(0.0, 1.0),
    noise=st.floats(0.0, 1e-3),
    scale=st.floats(1e-6, 1e6),
    batch=st.sampled_from([2, 64]),
)
def test_a_file_that_passes_without_float64_passes_with_it(
    factor: float | None, part: float, noise: float, scale: float, batch: int
) -> None:
    """`part * noise` is measured on some samples, `noise` on all."""
    model = Tolerance(noise=factor)
    sample = SAMPLE.model_copy(update={"axes": {"batch": batch}})
    first = subject(part * noise, model=model, samples=(sample,))
    narrow = compute_limit_without_float64(ComparedOutput(first, 0, "cpu"), scale).atol
    allowed = limit_of(scale, noise, model=model, samples=(sample,)).atol
    # The largest distance from float64 of a file that passes: PyTorch errs the other way.
    assert narrow == 0 or narrow + noise * scale <= allowed * (1 + 1e-9)


def test_a_file_within_pytorchs_own_noise_passes_without_float64() -> None:
    limit = compute_limit_without_float64(ComparedOutput(subject(1e-5), 0, "cpu"), 1.0)
    assert limit.atol == pytest.approx(7e-5)
    assert "less PyTorch's own error" in limit.reason


# --- steps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("integers", "passes"), [(0, True), (1, True), (-1, True), (2, False), (-2, False)]
)
def test_steps_of_a_quantized_output(integers: int, *, passes: bool) -> None:
    step, zero_point = np.float32(0.1), 64
    context = subject(None, model=Tolerance(steps=1.0))
    reference = context.reference.model_copy(update={"steps": (float(step),)})
    context = replace(context, reference=reference)
    expected = np.arange(-62, 190).astype(np.float32) * step
    shifted = (np.arange(2, 254) + integers - zero_point).astype(np.float32) * step
    limit = compute_limit(ComparedOutput(context, 0, "cpu"), measure_scale(expected))
    assert not is_limit_measured(ComparedOutput(context, 0, "cpu"))
    assert "1 steps of 0.1" in limit.reason
    assert (compare_arrays(shifted, expected, limit, expected).problem == "") is passes
    between = expected + np.float32(1.01) * step
    assert compare_arrays(between, expected, limit, expected).problem
