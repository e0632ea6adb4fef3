from __future__ import annotations

from pathlib import Path

import pytest

from exporter.checks.numerical.axes import Axes
from exporter.checks.numerical.parity import Parity
from exporter.jobs.reference import Sample
from exporter.manifest import Axis, Device, Input
from exporter.records.record import Status
from exporter.runtimes import open_session
from tests.unit.checks.contexts import (
    Computes,
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
    here = subject(tmp_path, declared(tmp_path), at(tmp_path, 1, 7), at(tmp_path, 2, 1))
    assert Axes().applies(here)
    result = Axes()(here, Computes(axes_of()), "cpu")
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
    result = Axes()(subject(tmp_path, *sizes), Computes(axes_of(*wrong)), "cpu")
    assert result.status is Status.FAIL
    assert result.message.startswith(first)
    assert result.message.endswith(others)
    assert ("fails on" in result.message) is bool(others)


def test_the_declared_inputs_do_not_count_for_axes(tmp_path: Path) -> None:
    here = subject(tmp_path, declared(tmp_path), at(tmp_path, 1, 7))
    assert Axes()(here, Computes(axes_of(2)), "cpu").status is Status.PASS
    assert Parity()(here, Computes(axes_of(2)), "cpu").status is Status.FAIL
    assert Parity()(here, Computes(axes_of(7)), "cpu").status is Status.PASS


def test_a_size_that_pytorch_refuses_fails(tmp_path: Path) -> None:
    refused = Sample(
        index=9, name="batch=7", kind="axis", axes={"batch": 7}, error="ValueError: only even"
    )
    result = Axes()(subject(tmp_path, refused, at(tmp_path, 1, 4)), Computes(axes_of()), "cpu")
    assert result.status is Status.FAIL
    assert result.message == (
        "PyTorch itself refuses batch=7: ValueError: only even; "
        "narrow the axis with min, max or multiple_of"
    )


@pytest.mark.parametrize("samples", [(), ("declared",)])
def test_an_axis_that_nothing_was_tried_on_is_inconclusive(
    samples: tuple[str, ...], tmp_path: Path
) -> None:
    here = subject(tmp_path, *(declared(tmp_path) for _ in samples))
    result = Axes()(here, Computes(axes_of()), "cpu")
    assert result.status is Status.INCONCLUSIVE
    assert result.message.startswith("no size but the exported one was tried for 'batch'")


def test_each_axis_must_have_been_tried(tmp_path: Path) -> None:
    axes = (Axis(name="batch", example=2), Axis(name="time", example=3))
    inputs = (value(Input, "x", "batch, time"),)
    here = subject(tmp_path, at(tmp_path, 1, 7), inputs=inputs, axes=axes)
    result = Axes()(here, Computes(axes_of()), "cpu")
    assert result.status is Status.INCONCLUSIVE
    assert "'time'" in result.message
    assert "'batch'" not in result.message


def test_without_dynamic_inputs_there_is_no_axes_check(tmp_path: Path) -> None:
    static = {"inputs": (value(Input, "x", "2, 3"),), "axes": (Axis(name="n", example=None),)}
    assert not Axes().applies(subject(tmp_path, declared(tmp_path), **static))


def test_a_batch_that_was_baked_in_fails(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[batch, 3] x) => (float[batch, 3] y)
    <float[2, 3] twos = {2.0, 2.0, 2.0, 2.0, 2.0, 2.0}> { y = Mul(x, twos) }"""
    samples = (declared(tmp_path), at(tmp_path, 1, 7), at(tmp_path, 2, 1))
    here = make_subject(tmp_path, text, reference=make_reference(*samples))
    session = open_session(here.path, CPU)
    assert Parity()(here, session, "cpu").status is Status.PASS
    result = Axes()(here, session, "cpu")
    assert result.status is Status.FAIL
    assert result.message.startswith("batch=7: the runtime fails: ")
    assert result.message.endswith("; fails on batch=1 too (2 of 2)")
    assert str(tmp_path) not in result.message
