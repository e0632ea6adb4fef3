from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.checks.protocol import CheckContext
from exporter.checks.validity_checks import PowerCheck
from exporter.jobs import JobFolder, Sample
from exporter.manifest import Bound, Output, Tolerance
from exporter.records.record import CheckResult, Status
from tests.unit.checks.contexts import ConstantSession, contract, make_reference, value


def subject(
    *scales: float,
    spread: tuple[float | None, ...] = (1.0,),
    noise: float | None = 1e-6,
    dtype: str = "float32",
    **fields: Any,
) -> CheckContext:
    """Return a context with one output for each scale."""
    names = "yzw"[: len(scales)]
    outputs = tuple(value(Output, name, "batch, 3", dtype) for name in names)
    sample = Sample(index=0, name="declared", kind="declared", axes={"batch": 50}, scales=scales)
    return CheckContext(
        folder=JobFolder(Path()),
        opset=18,
        spec=contract(outputs=outputs, **fields),
        reference=make_reference(sample, noise=(noise,) * len(scales), output_spread=spread),
    )


def power(subject: CheckContext, device: str = "cpu") -> CheckResult:
    check = PowerCheck()
    assert check.applies(subject)
    return check(subject, ConstantSession(), device)


def test_outputs_that_change_pass() -> None:
    result = power(subject(3.0))
    assert (result.check, result.status, result.message) == ("power", Status.PASS, "")
    assert result.metrics == {"spread": 1.0, "limit": pytest.approx(8e-6)}


def test_an_output_of_1e9_passes_under_the_measured_tolerance() -> None:
    assert power(subject(1e-9)).status is Status.PASS


def test_an_output_of_1e9_is_inconclusive_under_a_fixed_atol() -> None:
    result = power(subject(1e-9, tolerance=Tolerance(atol=1e-5)))
    assert result.status is Status.INCONCLUSIVE
    assert result.message == (
        "a wrong file would pass: the allowed error of output 'y' is 1.0e+04 of its size "
        "(atol 1e-05, rtol 0 from the manifest); give the model other weights or inputs, "
        "or a smaller tolerance"
    )


def test_an_output_that_hardly_changes_is_inconclusive() -> None:
    result = power(subject(1.0, spread=(7e-5,)))
    assert result.status is Status.INCONCLUSIVE
    assert (
        "output 'y' changes by 7.0e-05 of its size, and the allowed error is 8.0e-06 of its size"
        in result.message
    )
    assert power(subject(1.0, spread=(9e-5,))).status is Status.PASS


def test_all_zeros_are_inconclusive() -> None:
    result = power(subject(0.0))
    assert result.status is Status.INCONCLUSIVE
    assert "output 'y' has no number but 0" in result.message


def test_zeros_in_one_sample_and_numbers_in_another_pass() -> None:
    context = subject(0.0)
    more = Sample(index=1, name="on", kind="case", axes={"batch": 50}, scales=(2.0,))
    refused = Sample(index=2, name="off", kind="case", axes={"batch": 50}, error="no")
    samples = (*context.reference.samples, more, refused)
    both = CheckContext(
        folder=context.folder,
        opset=18,
        spec=context.spec,
        reference=context.reference.model_copy(update={"samples": samples}),
    )
    assert power(both).status is Status.PASS


@pytest.mark.parametrize("rtol", [0.2, 1.0])
def test_a_large_rtol_is_inconclusive(rtol: float) -> None:
    result = power(subject(1.0, tolerance=Tolerance(rtol=rtol)))
    assert result.status is Status.INCONCLUSIVE
    assert power(subject(1.0, tolerance=Tolerance(rtol=0.01))).status is Status.PASS


def test_a_large_noise_is_inconclusive() -> None:
    assert power(subject(1.0, noise=0.02)).status is Status.INCONCLUSIVE
    assert power(subject(1.0, noise=0.01)).status is Status.PASS


def test_a_constant_next_to_an_output_that_changes_passes() -> None:
    assert power(subject(1.0, 2.0, spread=(0.0, 0.5))).status is Status.PASS


def test_outputs_that_never_change_are_inconclusive() -> None:
    result = power(subject(1.0, 2.0, spread=(0.0, 0.0)))
    assert result.status is Status.INCONCLUSIVE
    assert "inputs of another seed give the very same 'y', 'z'" in result.message


def test_the_message_has_the_output_that_proves_nothing() -> None:
    result = power(subject(1.0, 0.0, spread=(1.0, 0.0)))
    assert result.status is Status.INCONCLUSIVE
    assert "'z'" in result.message
    assert "'y'" not in result.message


def test_without_random_inputs_the_size_decides() -> None:
    assert power(subject(1.0, spread=(None,))).status is Status.PASS
    assert power(subject(1.0, spread=(None,))).metrics == {"limit": pytest.approx(8e-6)}
    assert power(subject(0.0, spread=(None,))).status is Status.INCONCLUSIVE


@pytest.mark.parametrize(("rtol", "status"), [(0.09, "pass"), (0.11, "inconclusive")])
def test_the_limit_is_at_most_a_tenth_of_the_size(rtol: float, status: str) -> None:
    result = power(subject(1.0, spread=(None,), tolerance=Tolerance(rtol=rtol)))
    assert result.status == status
    assert ("the allowed error of output 'y' is 1.1e-01 of its size" in result.message) is (
        rtol > 0.1
    )


def test_the_tolerance_of_the_device_applies() -> None:
    context = subject(1.0, tolerance=Tolerance(by_device={"cuda": Bound(atol=1.0)}))
    assert power(context, "cpu").status is Status.PASS
    assert power(context, "cuda").status is Status.INCONCLUSIVE


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_float_outputs_count(dtype: str) -> None:
    assert power(subject(0.0, dtype=dtype, noise=None)).status is Status.INCONCLUSIVE
    assert power(subject(1.0, dtype=dtype, noise=None)).status is Status.PASS


@pytest.mark.parametrize(
    ("spread", "status"), [(0.5, "pass"), (None, "pass"), (0.0, "inconclusive")]
)
def test_integers_are_exact_and_only_have_to_change(spread: float | None, status: str) -> None:
    result = power(subject(0.0, dtype="int64", noise=None, spread=(spread,)))
    assert (result.status, result.metrics) == (status, {})
    if status == "inconclusive":
        assert "inputs of another seed give the very same 'y'" in result.message


def test_a_constant_float_next_to_an_integer_that_changes_passes() -> None:
    context = subject(1.0, 0.0, spread=(0.0, 0.5))
    first, second = context.spec.outputs
    outputs = (first, second.model_copy(update={"dtype": "int64"}))
    spec = context.spec.model_copy(update={"outputs": outputs})
    assert power(replace(context, spec=spec)).status is Status.PASS
    still = context.reference.model_copy(update={"output_spread": (0.0, 0.0)})
    assert power(replace(context, spec=spec, reference=still)).status is Status.INCONCLUSIVE


def test_the_change_is_compared_with_the_limit_of_the_declared_sample() -> None:
    """With other values, the output changed at its declared size."""
    context = subject(1e-7, spread=(0.5,), tolerance=Tolerance(atol=1e-5))
    large = Sample(index=1, name="on", kind="case", axes={"batch": 50}, scales=(2.0,))
    samples = (*context.reference.samples, large)
    both = context.reference.model_copy(update={"samples": samples})
    result = power(replace(context, reference=both))
    assert result.status is Status.INCONCLUSIVE
    assert (
        "output 'y' changes by 5.0e-01 of its size, and the allowed error is 1.0e+02 of its size"
        in result.message
    )
    enough = context.spec.model_copy(update={"tolerance": Tolerance(atol=1e-9)})
    assert power(replace(context, reference=both, spec=enough)).status is Status.PASS


@pytest.mark.parametrize("dtype", ["float32", "int64", "complex64"])
def test_an_output_without_elements_is_ignored(dtype: str) -> None:
    context = subject(3.0, 0.0, spread=(1.0, 0.0))
    empty = value(Output, "z", "batch, 0", dtype)
    result = power(replace_outputs(context, context.spec.outputs[0], empty))
    assert (result.status, result.message) == (Status.PASS, "")
    still = subject(3.0, 0.0, spread=(0.0, 0.0))
    result = power(replace_outputs(still, still.spec.outputs[0], empty))
    assert result.status is Status.INCONCLUSIVE
    assert "inputs of another seed give the very same 'y';" in result.message


def test_outputs_without_any_element_prove_nothing() -> None:
    context = subject(0.0, spread=(0.0,))
    result = power(replace_outputs(context, value(Output, "y", "batch, 0")))
    assert result.status is Status.INCONCLUSIVE
    assert "a wrong file would pass: no output has an element" in result.message


def test_a_complex_output_is_measured_like_any_other() -> None:
    assert power(subject(3.0, dtype="complex64")).status is Status.PASS
    result = power(subject(3.0, dtype="complex64", tolerance=Tolerance(atol=1.0)))
    assert result.status is Status.INCONCLUSIVE


def replace_outputs(context: CheckContext, *outputs: Output) -> CheckContext:
    return replace(context, spec=context.spec.model_copy(update={"outputs": outputs}))
