from __future__ import annotations

from pathlib import Path

import pytest

from exporter.checks.sample_checks import AXES, CASES, PARITY
from exporter.jobs import Sample
from exporter.manifest import Axis, Case, Device, Input
from exporter.records.record import Status
from exporter.runtimes import open_session
from tests.unit.checks.contexts import (
    ConstantSession,
    FunctionSession,
    as_kind,
    at,
    axes_of,
    declared,
    make_reference,
    make_subject,
    subject,
    value,
)

CPU = Device(name="cpu", runtime="onnxruntime")


def test_every_size_passes(tmp_path: Path) -> None:
    context = subject(tmp_path, declared(tmp_path), at(tmp_path, 1, 7), at(tmp_path, 2, 1))
    assert AXES.applies(context)
    result = AXES(context, FunctionSession(axes_of()), "cpu")
    assert (result.check, result.status, result.message) == ("axes", Status.PASS, "")
    assert result.metrics["samples"] == 2, "the declared sample is parity's"


@pytest.mark.parametrize(
    ("wrong", "first", "others"),
    [
        ((7,), "batch=7: output 'y': error", ""),
        ((1,), "batch=1: output 'y': error", ""),
        ((7, 1, 11), "batch=7: output 'y': error", "; fails on batch=1, batch=11 too (3 of 3)"),
    ],
)
def test_every_failing_size_is_named(
    wrong: tuple[int, ...], first: str, others: str, tmp_path: Path
) -> None:
    sizes = [at(tmp_path, 1, 7), at(tmp_path, 2, 1), at(tmp_path, 3, 11)]
    result = AXES(subject(tmp_path, *sizes), FunctionSession(axes_of(*wrong)), "cpu")
    assert result.status is Status.FAIL
    assert result.message.startswith(first)
    assert result.message.endswith(others)
    assert ("fails on" in result.message) is bool(others)


def test_a_failure_on_all_sizes_names_a_few(tmp_path: Path) -> None:
    sizes = [at(tmp_path, size, size) for size in range(1, 15)]
    result = AXES(subject(tmp_path, *sizes), FunctionSession(axes_of(*range(1, 15))), "cpu")
    names = ", ".join(f"batch={size}" for size in range(2, 10))
    assert result.message.endswith(f"; fails on {names}, ... too (14 of 14)")


def test_the_declared_inputs_do_not_count_for_axes(tmp_path: Path) -> None:
    context = subject(tmp_path, declared(tmp_path), at(tmp_path, 1, 7))
    assert AXES(context, FunctionSession(axes_of(2)), "cpu").status is Status.PASS
    assert PARITY(context, FunctionSession(axes_of(2)), "cpu").status is Status.FAIL
    assert PARITY(context, FunctionSession(axes_of(7)), "cpu").status is Status.PASS


def test_a_size_that_pytorch_refuses_fails(tmp_path: Path) -> None:
    refused = Sample(
        index=9, name="batch=7", kind="axis", axes={"batch": 7}, error="ValueError: only even"
    )
    result = AXES(subject(tmp_path, refused, at(tmp_path, 1, 4)), FunctionSession(axes_of()), "cpu")
    assert result.status is Status.FAIL
    assert result.message == (
        "PyTorch itself fails on batch=7: ValueError: only even; "
        "fix the model, or promise less: narrow the axis with min, max or multiple_of"
    )


@pytest.mark.parametrize("samples", [(), ("declared",)])
def test_an_axis_without_a_tested_size_is_inconclusive(
    samples: tuple[str, ...], tmp_path: Path
) -> None:
    context = subject(tmp_path, *(declared(tmp_path) for _ in samples))
    result = AXES(context, FunctionSession(axes_of()), "cpu")
    assert result.status is Status.INCONCLUSIVE
    assert result.message.startswith("only the exported size was tested for 'batch'")


def test_each_axis_needs_a_tested_size(tmp_path: Path) -> None:
    axes = (Axis(name="batch", example=2), Axis(name="time", example=3))
    inputs = (value(Input, "x", "batch, time"),)
    context = subject(tmp_path, at(tmp_path, 1, 7), inputs=inputs, axes=axes)
    result = AXES(context, FunctionSession(axes_of()), "cpu")
    assert result.status is Status.INCONCLUSIVE
    assert "'time'" in result.message
    assert "'batch'" not in result.message


def test_without_dynamic_inputs_there_is_no_axes_check(tmp_path: Path) -> None:
    static = {"inputs": (value(Input, "x", "2, 3"),), "axes": (Axis(name="n", example=None),)}
    assert not AXES.applies(subject(tmp_path, declared(tmp_path), **static))


def test_a_batch_that_was_baked_in_fails(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[batch, 3] x) => (float[batch, 3] y)
    <float[2, 3] twos = {2.0, 2.0, 2.0, 2.0, 2.0, 2.0}> { y = Mul(x, twos) }"""
    samples = (declared(tmp_path), at(tmp_path, 1, 7), at(tmp_path, 2, 1))
    context = make_subject(tmp_path, text, reference=make_reference(*samples))
    session = open_session(context.path, CPU)
    assert PARITY(context, session, "cpu").status is Status.PASS
    result = AXES(context, session, "cpu")
    assert result.status is Status.FAIL
    assert result.message.startswith("batch=7: the runtime fails: ")
    assert result.message.endswith("; fails on batch=1 too (2 of 2)")
    assert str(tmp_path) not in result.message


def test_cases_are_compared(tmp_path: Path) -> None:
    nine = as_kind(at(tmp_path, 1, 9), "case", "nine")
    context = subject(tmp_path, declared(tmp_path), nine, cases=(Case(name="nine"),))
    assert CASES.applies(context)
    assert CASES(context, FunctionSession(axes_of()), "cpu").status is Status.PASS
    result = CASES(context, FunctionSession(axes_of(9)), "cpu")
    assert (result.check, result.status) == ("cases", Status.FAIL)
    assert result.message.startswith("nine: output 'y': error")


def test_a_case_without_a_sample_does_not_pass(tmp_path: Path) -> None:
    nine = as_kind(at(tmp_path, 1, 9), "case", "nine")
    context = subject(tmp_path, nine, cases=(Case(name="nine"), Case(name="ten")))
    result = CASES(context, FunctionSession(axes_of()), "cpu")
    assert (result.status, result.message) == (
        Status.ERROR,
        "PyTorch's outputs are missing for ten: nothing was compared",
    )


def test_a_case_that_pytorch_refuses_fails(tmp_path: Path) -> None:
    refused = Sample(index=1, name="ten", kind="case", axes={"batch": 2}, error="IndexError: 10")
    result = CASES(subject(tmp_path, refused, cases=(Case(name="ten"),)), ConstantSession(), "cpu")
    assert (result.status, result.message) == (
        Status.FAIL,
        "ten: PyTorch itself fails in this case: IndexError: 10",
    )


def test_without_cases_there_is_no_cases_check(tmp_path: Path) -> None:
    assert not CASES.applies(subject(tmp_path, declared(tmp_path)))
