from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.checks.protocol import CheckedFile
from exporter.checks.validity_checks import check_power
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
) -> CheckedFile:
    """Return a context with one output for each scale."""
    names = "yzw"[: len(scales)]
    outputs = tuple(value(Output, name, "batch, 3", dtype) for name in names)
    sample = Sample(index=0, name="declared", kind="declared", axes={"batch": 50}, scales=scales)
    return CheckedFile(
        folder=JobFolder(Path()),
        opset=18,
        spec=contract(outputs=outputs, **fields),
        reference=make_reference(sample, noise=(noise,) * len(scales), output_spread=spread),
    )


def power(subject: CheckedFile, device: str = "cpu") -> CheckResult:
    assert check_power.applies(subject)
    return check_power(subject, ConstantSession(), device)


def test_outputs_that_change_pass() -> None:
    result = power(subject(3.0))
    assert (result.check, result.status, result.message) == ("power", Status.PASS, "")
    assert result.metrics == {"spread": 1.0, "limit": pytest.approx(8e-6)}
    assert power(subject(1.0, spread=(None,))).metrics == {"limit": pytest.approx(8e-6)}
    assert power(subject(0.0, dtype="int64", noise=None, spread=(0.5,))).metrics == {}


FLOATS = ("float16", "bfloat16", "float64")
SMALL_CHANGE = "output 'y' changes by 7.0e-05 of its size, and the allowed error is 8.0e-06 of its"
LARGE_LIMIT = "the allowed error of output 'y' is 1.1e-01 of its size"
SAME_OUTPUT = "inputs of another seed give the very same "


@pytest.mark.parametrize(
    ("context", "problem"),
    [
        # The size of an output counts only if the tolerance is fixed.
        (subject(1e-9), ""),
        (
            subject(1e-9, tolerance=Tolerance(atol=1e-5)),
            "a wrong file would pass: the allowed error of output 'y' is 1.0e+04 of its size "
            + "(atol 1e-05, rtol 0 from the manifest); give the model other weights or inputs; "
            + "declare a smaller tolerance",
        ),
        (subject(1.0, spread=(7e-5,)), SMALL_CHANGE),
        (subject(1.0, spread=(9e-5,)), ""),
        (subject(0.0, spread=(0.0,)), "output 'y' has no number but 0"),
        (subject(1.0, tolerance=Tolerance(rtol=0.2)), "of its size"),
        (subject(1.0, tolerance=Tolerance(rtol=1.0)), "of its size"),
        (subject(1.0, tolerance=Tolerance(rtol=0.01)), ""),
        (subject(1.0, noise=0.02), "of its size"),
        (subject(1.0, noise=0.01), ""),
        # A constant is allowed next to an output that changes.
        (subject(1.0, 2.0, spread=(0.0, 0.5)), ""),
        (subject(1.0, 2.0, spread=(0.0, 0.0)), SAME_OUTPUT + "'y', 'z'"),
        (subject(1.0, 0.0, spread=(1.0, 0.0)), ""),
        (subject(1.0, 0.0, spread=(1.0, None)), "output 'z' has no number but 0"),
        (subject(0.0, 0.0, spread=(0.0, 0.0)), "output 'y' has no number but 0"),
        (
            subject(1.0, 1e-9, spread=(1.0, 0.0), tolerance=Tolerance(atol=1e-5)),
            "the allowed error of output 'z'",
        ),
        # Zeros become other numbers for special values, so that a file of zeros fails.
        (subject(0.0, spread=(0.5,)), ""),
        # Without random inputs, the size decides.
        (subject(1.0, spread=(None,)), ""),
        (subject(0.0, spread=(None,)), "output 'y' has no number but 0"),
        (subject(1.0, spread=(None,), tolerance=Tolerance(rtol=0.09)), ""),
        (subject(1.0, spread=(None,), tolerance=Tolerance(rtol=0.11)), LARGE_LIMIT),
        *(
            (subject(0.0, dtype=each, noise=None, spread=(0.0,)), "'y' has no number but 0")
            for each in FLOATS
        ),
        *((subject(1.0, dtype=each, noise=None), "") for each in FLOATS),
        # Integers are exact and only have to change.
        (subject(0.0, dtype="int64", noise=None, spread=(0.5,)), ""),
        (subject(0.0, dtype="int64", noise=None, spread=(None,)), ""),
        (subject(0.0, dtype="int64", noise=None, spread=(0.0,)), SAME_OUTPUT + "'y'"),
        (subject(3.0, dtype="complex64"), ""),
        (subject(3.0, dtype="complex64", tolerance=Tolerance(atol=1.0)), "of its size"),
    ],
)
def test_an_output_must_change_by_more_than_the_limit(context: CheckedFile, problem: str) -> None:
    result = power(context)
    assert result.status is (Status.INCONCLUSIVE if problem else Status.PASS)
    assert problem in result.message
    assert ("'y'" in result.message) is ("'y'" in problem or problem == "of its size")


def test_zeros_in_one_sample_and_numbers_in_another_pass() -> None:
    context = subject(0.0)
    more = Sample(index=1, name="on", kind="case", axes={"batch": 50}, scales=(2.0,))
    refused = Sample(index=2, name="off", kind="case", axes={"batch": 50}, error="no")
    samples = (*context.reference.samples, more, refused)
    both = context.reference.model_copy(update={"samples": samples})
    assert power(replace(context, reference=both)).status is Status.PASS


def test_the_tolerance_of_the_device_applies() -> None:
    context = subject(1.0, tolerance=Tolerance(by_device={"cuda": Bound(atol=1.0)}))
    assert power(context, "cpu").status is Status.PASS
    assert power(context, "cuda").status is Status.INCONCLUSIVE


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


def replace_outputs(context: CheckedFile, *outputs: Output) -> CheckedFile:
    return replace(context, spec=context.spec.model_copy(update={"outputs": outputs}))


def test_the_fix_is_one_that_helps() -> None:
    """A tolerance that nobody declared cannot be smaller, and texts have no range."""
    small = subject(1.0, spread=(7e-5,))
    assert power(small).message.endswith("declare inputs that are 10 times larger by `fill`")
    two = subject(1.0, 1.0, spread=(7e-5, 1e-6))
    assert power(two).message.endswith("declare inputs that are 1000 times larger by `fill`")
    constant = subject(1.0, spread=(1e-12,))
    assert power(constant).message.endswith("are usual with initial weights: load trained ones")
    declared = subject(1.0, spread=(7e-5,), tolerance=Tolerance(noise=8.0))
    assert power(declared).message.endswith("or inputs; declare a smaller tolerance")
    for still in (subject(1.0, spread=(0.0,)), subject(1.0, noise=0.02)):
        assert power(still).message.endswith("; give the model other weights or inputs")
    (floats,) = small.spec.inputs
    inputs = (floats.model_copy(update={"dtype": "int64"}),)
    whole = replace(small, spec=small.spec.model_copy(update={"inputs": inputs}))
    assert power(whole).message.endswith("are usual with initial weights: load trained ones")
