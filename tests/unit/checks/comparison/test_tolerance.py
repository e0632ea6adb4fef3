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
    OutputContext,
    compute_limit,
    compute_limit_without_float64,
    is_float,
    is_limit_measured,
)
from exporter.checks.protocol import CheckContext
from exporter.checks.sample_checks import select_samples
from exporter.jobs import JobFolder, Sample
from exporter.manifest import (
    Bound,
    Output,
    Tolerance,
    select_bound,
)
from tests.unit.checks.contexts import contract, make_reference, value

SAMPLE = Sample(index=0, name="declared", kind="declared", axes={"batch": 16}, scales=(1.0,))
ZERO = SAMPLE.model_copy(update={"scales": (0.0,)})
FLOAT32 = 2.0**-23


def subject(
    noise: float | None,
    *,
    dtype: str = "float32",
    shape: str = "batch, 3",
    model: Tolerance | None = None,
    output: Tolerance | None = None,
    samples: tuple[Sample, ...] = (SAMPLE,),
) -> CheckContext:
    outputs = (value(Output, "y", shape, dtype, tolerance=output),)
    return CheckContext(
        folder=JobFolder(Path()),
        opset=18,
        spec=contract(outputs=outputs, tolerance=model or Tolerance()),
        reference=make_reference(*samples, noise=(noise,)),
    )


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
    limit = compute_limit(OutputContext(subject(noise, samples=(sample,)), 0, "cpu"), scale)
    assert limit.atol >= least * 0.999
    if noise is not None:
        assert limit.atol == pytest.approx(least)


def test_manifest_bound_below_the_rounding_of_the_declared_scale() -> None:
    limit = compute_limit(
        OutputContext(subject(1e-9, model=Tolerance(atol=1e-12)), 0, "cpu"), 1e-16
    )
    assert limit.atol == 1e-12


def test_eight_times_the_noise_at_the_scale() -> None:
    limit = compute_limit(OutputContext(subject(1e-5), 0, "cpu"), 4.0)
    assert limit.atol == pytest.approx(8 * 1e-5 * 4)
    assert (limit.rtol, limit.outside) == (0.0, 0.0)
    assert limit.noise == pytest.approx(4e-5)
    assert limit.reason == "8 x PyTorch's own float32 noise"


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
    limit = compute_limit(OutputContext(subject(0.0, dtype=dtype), 0, "cpu"), 5.0)
    assert limit.atol == pytest.approx(5 * places, abs=0)
    assert "units in " in limit.reason
    assert dtype in limit.reason


def test_an_explicit_factor() -> None:
    limit = compute_limit(OutputContext(subject(1e-5, model=Tolerance(noise=20.0)), 0, "cpu"), 1.0)
    assert limit.atol == pytest.approx(2e-4)
    assert limit.reason == "20 x PyTorch's own float32 noise"


def test_a_tiny_factor_does_not_go_below_the_floor() -> None:
    limit = compute_limit(OutputContext(subject(1e-5, model=Tolerance(noise=1e-9)), 0, "cpu"), 1.0)
    assert limit.atol == pytest.approx(8 * FLOAT32)


def test_an_explicit_share_outside_keeps_the_measured_limit() -> None:
    limit = compute_limit(OutputContext(subject(1e-5, model=Tolerance(outside=0.1)), 0, "cpu"), 1.0)
    assert (limit.atol, limit.outside) == (pytest.approx(8e-5), 0.1)


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
    limit = compute_limit(
        OutputContext(subject(1e-9, shape=shape, samples=(sample,)), 0, "cpu"), 2.0
    )
    assert limit.atol == pytest.approx(2 * (1.13e-5 if few else 8 * FLOAT32))
    assert ("elements are few" in limit.reason) is few


def test_a_short_proof_has_the_limit_of_the_full_one() -> None:
    """Its few samples have few elements, but the noise comes from all samples."""
    other = SAMPLE.model_copy(update={"kind": "values", "axes": {"batch": 20}})
    context = subject(1e-9, shape="batch", samples=(SAMPLE, *(other,) * 3))
    short = replace(context, is_short=True)
    assert len(select_samples("values", short)) == 1 < len(select_samples("values", context))
    assert compute_limit(OutputContext(short, 0, "cpu"), 2.0) == compute_limit(
        OutputContext(context, 0, "cpu"), 2.0
    )


def test_only_elements_of_samples_that_ran_count() -> None:
    scalar = {"shape": "4"}
    enough = compute_limit(
        OutputContext(subject(0.0, samples=(SAMPLE,) * 8, **scalar), 0, "cpu"), 1.0
    )
    failed = SAMPLE.model_copy(update={"error": "refused"})
    fewer = compute_limit(
        OutputContext(subject(0.0, samples=(SAMPLE,) * 7 + (failed,), **scalar), 0, "cpu"), 1.0
    )
    assert enough.atol < fewer.atol


def test_a_large_noise_also_sets_the_limit_of_few_elements() -> None:
    assert compute_limit(
        OutputContext(subject(1e-4, shape=""), 0, "cpu"), 1.0
    ).atol == pytest.approx(8e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_at_scale_0_the_limit_is_0(dtype: str) -> None:
    limit = compute_limit(OutputContext(subject(0.0, dtype=dtype, samples=(ZERO,)), 0, "cpu"), 0.0)
    assert 0 < limit.atol <= 8 * 2.0**-24


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
    assert (
        compute_limit(
            OutputContext(subject(0.0, dtype=dtype, samples=(ZERO,)), 0, "cpu"), floor
        ).atol
        == floor
    )


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
    limit = compute_limit(
        OutputContext(subject(noise, dtype=np.dtype(dtype).name), 0, "cpu"), scale
    )
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
    limit = compute_limit(OutputContext(subject(None, dtype=dtype), 0, "cpu"), 30.0)
    assert (limit.atol, limit.rtol) == (pytest.approx(30 * atol), rtol)
    assert limit.noise is None
    assert limit.reason.startswith("torch.testing's default for")
    assert limit.allowed_error(30.0) == pytest.approx(30 * (atol + rtol))


def test_a_sample_without_float64_cannot_be_measured() -> None:
    limit = compute_limit(OutputContext(subject(1e-3), 0, "cpu"), 1.0, exact=False)
    assert limit.atol == pytest.approx(1e-5)


# --- explicit -------------------------------------------------------------------------------------


def test_explicit_atol_and_rtol() -> None:
    by_hand = Tolerance(atol=1e-3, rtol=1e-2, outside=0.5)
    limit = compute_limit(OutputContext(subject(1e-9, model=by_hand), 0, "cpu"), 7.0)
    assert (limit.atol, limit.rtol, limit.outside) == (1e-3, 1e-2, 0.5)
    assert limit.reason == "atol 0.001, rtol 0.01 from the manifest"
    assert limit.noise == pytest.approx(7e-9)


@pytest.mark.parametrize(
    ("bound", "atol", "rtol"),
    [
        (Tolerance(atol=1e-3), 1e-3, 0.0),
        (Tolerance(rtol=1e-2), 0.0, 1e-2),
        (Tolerance(atol=0.0), 0.0, 0.0),
    ],
)
def test_a_missing_atol_or_rtol_is_0(bound: Tolerance, atol: float, rtol: float) -> None:
    limit = compute_limit(OutputContext(subject(1e-3, model=bound), 0, "cpu"), 1.0)
    assert (limit.atol, limit.rtol) == (atol, rtol)


def test_an_explicit_limit_is_not_measured() -> None:
    assert is_limit_measured(OutputContext(subject(1e-5), 0, "cpu"))
    assert is_limit_measured(OutputContext(subject(1e-5, model=Tolerance(noise=3.0)), 0, "cpu"))
    assert not is_limit_measured(OutputContext(subject(None), 0, "cpu"))
    assert not is_limit_measured(OutputContext(subject(1e-5, model=Tolerance(atol=1.0)), 0, "cpu"))
    assert not is_limit_measured(OutputContext(subject(1e-5, output=Tolerance(rtol=1.0)), 0, "cpu"))


#: From the most to the least specific.
KEYS = ("output device", "output dtype", "output", "model device", "model dtype", "model")


@pytest.mark.parametrize("first", range(len(KEYS)))
def test_the_most_specific_setting_applies(first: int) -> None:
    """The settings from `first` on are set, the more specific ones are not."""
    atols = {key: float(n + 1) for n, key in enumerate(KEYS) if n >= first}
    model, output = (_tolerance(side, atols) for side in ("model", "output"))
    context = subject(None, model=model, output=output)
    assert compute_limit(OutputContext(context, 0, "cuda"), 1.0).atol == first + 1


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
    assert compute_limit(OutputContext(context, 0, "cpu"), 1.0).atol == pytest.approx(8e-5)


def test_a_more_specific_setting_replaces_all_fields() -> None:
    model = Tolerance(atol=1.0, rtol=1.0, outside=0.5, by_device={"cuda": Bound(rtol=0.25)})
    limit = compute_limit(OutputContext(subject(None, model=model), 0, "cuda"), 1.0)
    assert (limit.atol, limit.rtol, limit.outside) == (0.0, 0.25, 0.0)


@pytest.mark.parametrize("key", [Bound(noise=2.0), Bound(outside=0.1), Bound(atol=0.0)])
def test_each_field_alone_is_a_setting(key: Bound) -> None:
    context = subject(1e-5, model=Tolerance(atol=1.0, by_device={"cuda": key}))
    assert select_bound(context.spec, context.spec.outputs[0], "cuda") == key


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_floats_have_limits(dtype: str) -> None:
    assert is_float(dtype)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "bool", "str"])
def test_other_dtypes_are_exact(dtype: str) -> None:
    assert not is_float(dtype)


def test_only_a_measured_limit_grows_beyond_the_scale() -> None:
    measured = compute_limit(OutputContext(subject(1e-6), 0, "cpu"), 2.0)
    assert measured.allowed_error(200.0) == pytest.approx(100 * measured.allowed_error(2.0))
    assert measured.allowed_error(0.01) == measured.allowed_error(2.0)
    by_hand = compute_limit(OutputContext(subject(1e-6, model=Tolerance(atol=0.5)), 0, "cpu"), 2.0)
    assert by_hand.allowed_error(200.0) == 0.5


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
    all_samples = subject(noise, model=model, samples=(sample,))
    narrow = compute_limit_without_float64(OutputContext(first, 0, "cpu"), scale).atol
    allowed = compute_limit(OutputContext(all_samples, 0, "cpu"), scale).atol
    # The largest distance from float64 of a file that passes: PyTorch errs the other way.
    assert narrow == 0 or narrow + noise * scale <= allowed * (1 + 1e-9)


def test_a_file_within_pytorchs_own_noise_passes_without_float64() -> None:
    context = subject(1e-5)
    assert compute_limit_without_float64(
        OutputContext(context, 0, "cpu"), 1.0
    ).atol == pytest.approx(7e-5)
    assert (
        "less PyTorch's own error"
        in compute_limit_without_float64(OutputContext(context, 0, "cpu"), 1.0).reason
    )


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
    limit = compute_limit(OutputContext(context, 0, "cpu"), measure_scale(expected))
    assert not is_limit_measured(OutputContext(context, 0, "cpu"))
    assert "1 steps of 0.1" in limit.reason
    assert (compare_arrays(shifted, expected, limit, expected).problem == "") is passes
    between = expected + np.float32(1.01) * step
    assert compare_arrays(between, expected, limit, expected).problem


def test_steps_without_a_known_step_require_equal_values() -> None:
    context = subject(None, model=Tolerance(steps=1.0))
    assert compute_limit(OutputContext(context, 0, "cpu"), 1.0).allowed_error(1.0) == 0.0
