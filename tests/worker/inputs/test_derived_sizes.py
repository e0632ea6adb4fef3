"""Calls from user code with sizes that other sizes determine."""

from __future__ import annotations

import pytest

from exporter.manifest import Axis, InputsFrom, ModelSpec
from exporter.manifest.resolved.call import SizeRule
from exporter.worker.inputs.input_sets import choose_usual_sets
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.inputs.inputs_from import resolve_inputs_from
from exporter.worker.process.failure import Failure
from tests.worker.contracts import ROOT, declare_input, make_contract


def _contract(function: str) -> ModelSpec:
    return make_contract(
        "Affine",
        inputs=tuple(
            declare_input(name, axis, 4, at="")
            for name, axis in (("x", "seq"), ("past", "past"), ("mask", "total"))
        ),
        inputs_from=InputsFrom(function=f"calls.py:{function}"),
        axes=(
            Axis(name="seq", example=5),
            Axis(name="past", example=3),
            Axis(name="total", example=8, rule=SizeRule(kind="sum", operands=("past", "seq"))),
        ),
    )


def test_function_receives_the_sizes_of_derived_axes() -> None:
    spec = resolve_inputs_from(_contract("build_sized_cache"), ROOT)
    for chosen in choose_usual_sets(spec):
        tensors = draw_inputs(spec, chosen, ROOT)
        assert len(tensors["mask"]) == len(tensors["x"]) + len(tensors["past"])


def test_tensors_define_the_sizes_of_derived_axes() -> None:
    spec = resolve_inputs_from(_contract("build_cache"), ROOT)
    assert {axis.name: axis.example for axis in spec.axes} == {"seq": 5, "past": 2, "total": 7}


def test_tensor_of_another_size_than_the_rule_is_reported() -> None:
    message = r"the axis 'total' has the size 6, declared is past \+ seq = 7"
    with pytest.raises(Failure, match=message):
        resolve_inputs_from(_contract("build_short_mask"), ROOT)
