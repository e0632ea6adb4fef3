"""Calls from user code: flattened, resolved, drawn again."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from exporter.manifest import Axis, Case, Fill, InputsFrom, ModelSpec
from exporter.worker.inputs.call import build_tensor_call
from exporter.worker.inputs.input_sets import choose_usual_sets
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.inputs.inputs_from import measure_axes, resolve_inputs_from
from exporter.worker.process.failure import Failure
from tests.worker.contracts import ROOT, declare_input, make_contract
from tests.worker.graphs import draw_declared

_FUNCTION = Fill(kind="function")


def function_contract(
    function: str, *, cases: tuple[Case, ...] = (), **changes: object
) -> ModelSpec:
    values: dict[str, object] = {
        "inputs": tuple(
            declare_input(name, at="", fill=_FUNCTION) for name in ("x", "first", "inner")
        ),
        "inputs_from": InputsFrom(function=f"calls.py:{function}"),
        "cases": cases,
    }
    return make_contract("Affine", **{**values, **changes})


def by_case(function: str) -> tuple[Case, ...]:
    return (Case(name="other", inputs_from=InputsFrom(function=f"calls.py:{function}")),)


def test_every_value_has_a_path() -> None:
    spec = resolve_inputs_from(function_contract("build_with_sizes"), ROOT)
    assert [item.at for item in spec.inputs] == ["args[0]", "args[1][0]", "args[2].box.inner"]
    assert [(each.at, each.value) for each in spec.constants] == [
        ("args[1][1]", None),
        ("args[2].box.size", 3),
        ("kwargs.flag", True),
    ]
    kinds = {each.at: each.type for each in spec.containers}
    assert kinds.pop("args[2].box").endswith("calls:Box")
    assert kinds == {"args[1]": "list", "kwargs.empty": "list"}
    assert spec.inputs_from == InputsFrom(function="calls.py:build_with_sizes", takes_sizes=True)
    call = build_tensor_call(spec, draw_declared(spec))
    assert call.args[0].shape == (3, 4)
    assert isinstance(call.args[1], list)
    assert call.kwargs == {"flag": True, "empty": []}


def test_sizes_reach_the_function_and_values_follow_the_seed() -> None:
    spec = resolve_inputs_from(function_contract("build_with_sizes"), ROOT)
    drawn = {each.name: draw_inputs(spec, each, ROOT) for each in choose_usual_sets(spec)}
    assert drawn["batch=1"]["inner"].shape == (1, 4)
    assert torch.equal(drawn["declared"]["x"], draw_declared(spec)["x"])
    assert not torch.equal(drawn["declared"]["x"], drawn["other x"]["x"])
    assert torch.equal(drawn["declared"]["first"], drawn["other x"]["first"])


def test_without_a_size_parameter_the_tensors_define_the_axes() -> None:
    spec = resolve_inputs_from(function_contract("build_fixed"), ROOT)
    assert spec.find_axis("batch").example == 5
    assert {each.kind for each in choose_usual_sets(spec)} == {"declared", "values"}


def test_a_case_may_have_other_sizes() -> None:
    spec = resolve_inputs_from(
        function_contract("build_with_sizes", cases=by_case("build_fixed")), ROOT
    )
    chosen = next(each for each in choose_usual_sets(spec) if each.kind == "case")
    drawn = draw_inputs(spec, chosen, ROOT)
    assert measure_axes(spec, chosen, drawn) == {"batch": 5}
    declared = choose_usual_sets(spec)[0]
    assert measure_axes(
        spec, replace(declared, sizes={"batch": 3}), draw_inputs(spec, declared, ROOT)
    ) == {"batch": 3}


def test_named_tuples_are_containers_of_their_class() -> None:
    inputs = tuple(declare_input(name, at="", fill=_FUNCTION) for name in ("first", "second"))
    spec = resolve_inputs_from(function_contract("build_named_tuple", inputs=inputs), ROOT)
    assert [item.at for item in spec.inputs] == ["args[0][0]", "args[0][1]"]
    assert spec.containers[0].type.endswith("calls:TensorPair")


def test_a_fill_replaces_the_values_of_the_function() -> None:
    inputs = (
        declare_input("x", at="", fill=_FUNCTION),
        declare_input("first", at="", fill=Fill(kind="ones")),
        declare_input("inner", at="", fill=_FUNCTION),
    )
    case = Case(name="zeros", fills={"x": Fill(kind="zeros")}, axes={"batch": 6})
    spec = resolve_inputs_from(
        function_contract("build_with_sizes", inputs=inputs, cases=(case,)), ROOT
    )
    drawn = {each.name: draw_inputs(spec, each, ROOT) for each in choose_usual_sets(spec)}
    assert torch.equal(drawn["declared"]["first"], torch.ones(3, 4))
    assert torch.equal(drawn["batch=1"]["first"], torch.ones(1, 4))
    assert torch.equal(drawn["zeros"]["x"], torch.zeros(6, 4))
    assert torch.equal(drawn["zeros"]["first"], torch.ones(6, 4))
    assert drawn["zeros"]["inner"].std() > 0.5
    assert not torch.equal(drawn["declared"]["first"], drawn["other first"]["first"])
    assert torch.equal(drawn["declared"]["x"], drawn["other first"]["x"])


def test_a_fill_has_the_sizes_of_the_returned_tensors() -> None:
    inputs = (
        declare_input("x", at="", fill=Fill(kind="zeros")),
        *(declare_input(name, at="", fill=_FUNCTION) for name in ("first", "inner")),
    )
    spec = resolve_inputs_from(function_contract("build_fixed", inputs=inputs), ROOT)
    drawn = draw_declared(spec)
    assert torch.equal(drawn["x"], torch.zeros(5, 4))
    assert drawn["first"].shape == (5, 4)


def test_integer_and_bool_inputs_of_a_function_need_no_fill() -> None:
    inputs = (
        declare_input("ids", at="", dtype="int64", fill=_FUNCTION),
        declare_input("mask", at="", dtype="bool", fill=_FUNCTION),
    )
    spec = resolve_inputs_from(function_contract("build_ids", inputs=inputs), ROOT)
    drawn = {each.name: draw_inputs(spec, each, ROOT) for each in choose_usual_sets(spec)}
    assert drawn["declared"]["ids"].dtype is torch.int64
    assert not torch.equal(drawn["declared"]["ids"], drawn["other ids"]["ids"])
    assert int(drawn["other ids"]["ids"].max()) < 7, "values of the function with another seed"
    assert "larger ids" not in drawn


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            "build_tensor_only",
            "calls.py:build_tensor_only returned a Tensor, expected (args, kwargs)",
        ),
        ("build_unknown_object", "args[1] is a OpaqueObject, expected tensors, numbers"),
        ("build_invalid_key", "args[0] has the key 'a b', expected a name or an index"),
        ("raise_error", "RuntimeError: no data here"),
        ("build_random", "calls.py:build_random returns other values at args[0] in each call"),
        (
            "build_two_arguments",
            "returns 2 tensors (args[0], args[1][0]), the entry declares 3 inputs",
        ),
        (
            "build_float64",
            "input 'x': the values are float64 [5, 4], declared float32 [batch=5, 4]",
        ),
        (
            "build_unequal_sizes",
            "input 'first': the values are float32 [5, 4], declared float32 [batch=6, 4]",
        ),
    ],
)
def test_an_invalid_call_fails(function: str, message: str) -> None:
    with pytest.raises(Failure) as caught:
        resolve_inputs_from(function_contract(function), ROOT)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("build_other_flag", "returns False at kwargs.flag, the declared call has True"),
        (
            "build_two_arguments",
            "the tensors are at args[0], args[1][0], in the declared call at args[0]",
        ),
        ("build_float64", "input 'x': the values are float64"),
    ],
)
def test_a_case_is_the_declared_call_with_other_tensors(function: str, message: str) -> None:
    spec = resolve_inputs_from(function_contract("build_with_sizes", cases=by_case(function)), ROOT)
    chosen = next(each for each in choose_usual_sets(spec) if each.kind == "case")
    with pytest.raises(Failure) as caught:
        draw_inputs(spec, chosen, ROOT)
    assert message in caught.value.message


def test_a_declared_call_is_unchanged() -> None:
    spec = make_contract("Affine", axes=(Axis(name="batch", example=3),))
    assert resolve_inputs_from(spec, ROOT) == spec
