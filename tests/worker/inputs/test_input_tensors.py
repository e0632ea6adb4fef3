"""From an input set to the tensors of a call."""

from __future__ import annotations

import pytest
import torch

from exporter.manifest import (
    Axis,
    Case,
    Constant,
    Fill,
    ModelSpec,
)
from exporter.worker.inputs.call import build_call, build_tensor_call
from exporter.worker.inputs.input_sets import InputSet, choose_usual_sets
from exporter.worker.inputs.input_tensors import draw_inputs, draw_lengths, draw_mask
from exporter.worker.process.failure import Failure
from tests.worker.contracts import ROOT, declare_input, make_contract, make_fill


def declared_set(spec: ModelSpec) -> InputSet:
    return choose_usual_sets(spec)[0]


def draw_one(**changes: object) -> torch.Tensor:
    spec = make_contract("Affine", inputs=(declare_input("x", 200, **changes),), axes=())
    return draw_inputs(spec, declared_set(spec), ROOT)["x"]


def test_the_same_seed_draws_the_same_values() -> None:
    spec = make_contract("Affine")
    first = draw_inputs(spec, declared_set(spec), ROOT)["x"]
    assert first.shape == (3, 4)
    assert torch.equal(first, draw_inputs(spec, declared_set(spec), ROOT)["x"])
    other = make_contract("Affine", seed=1)
    assert not torch.equal(first, draw_inputs(other, declared_set(other), ROOT)["x"])


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("arange", 0, [3.0, 2.0, 1.0, 0.0]),
        ("value", 5, [7.75] * 4),
        ("zeros", 0, [0.25] * 4),
    ],
)
def test_fixed_values_are_replaced_by_nearby_values(
    kind: str, value: int, expected: list[float]
) -> None:
    spec = make_contract(
        "Affine", inputs=(declare_input("x", 4, fill=make_fill(kind, value=value)),), axes=()
    )
    assert draw_inputs(spec, choose_usual_sets(spec)[-1], ROOT)["x"].tolist() == expected


def test_integers_below_the_size_of_an_axis_follow_its_size() -> None:
    edges = declare_input("edges", 2, 40, dtype="int64", fill=make_fill("randint", axis="nodes"))
    spec = make_contract(
        "", inputs=(declare_input("x", "nodes", 3), edges), axes=(Axis(name="nodes", example=3),)
    )
    sets = choose_usual_sets(spec)
    assert {each.sizes["nodes"] for each in sets} >= {1, 3, 7}
    for chosen in sets:
        values = draw_inputs(spec, chosen, ROOT)["edges"]
        size = chosen.sizes["nodes"]
        assert 0 <= values.min() <= values.max() < size, chosen.name
        if chosen.kind == "axis":
            assert set(values.flatten().tolist()) == {*range(size)}, chosen.name


def test_each_fill_generates_its_values() -> None:
    assert 0.7 < draw_one().std() < 1.3
    uniform = draw_one(fill=make_fill("uniform", low=2.0, high=3.0))
    assert uniform.min() >= 2.0
    assert uniform.max() <= 3.0
    assert uniform.std() > 0.1
    integers = draw_one(dtype="int64", fill=make_fill("randint", low=5, high=8))
    assert integers.dtype is torch.int64
    assert set(integers.tolist()) == {5, 6, 7}
    chances = draw_one(dtype="bool", fill=make_fill("bernoulli", probability=0.25))
    assert chances.dtype is torch.bool
    assert 10 < int(chances.sum()) < 90
    assert torch.equal(draw_one(fill=make_fill("zeros")), torch.zeros(200))
    assert torch.equal(draw_one(fill=make_fill("ones")), torch.ones(200))
    assert torch.equal(draw_one(fill=make_fill("arange")), torch.arange(200.0))
    assert torch.equal(draw_one(fill=make_fill("value", value=5)), torch.full((200,), 5.0))
    assert torch.equal(
        draw_one(fill=make_fill("python", python="nets.py:fill_with_sevens")),
        torch.full((200,), 7.0),
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint8", "bool"])
def test_every_dtype_can_be_drawn(dtype: str) -> None:
    kind = "normal" if "float" in dtype else "bernoulli"
    tensor = draw_one(dtype=dtype, fill=make_fill(kind))
    assert tensor.dtype is getattr(torch, dtype)
    assert len(tensor.unique()) > 1


def test_a_case_sets_values_and_sizes() -> None:
    spec = make_contract(
        "Affine",
        inputs=(declare_input(), declare_input("count", at="args[1]", dtype="int64", shape=())),
        cases=(Case(name="nine", fills={"count": Fill(kind="value", value=9)}, axes={"batch": 8}),),
    )
    spec = spec.model_copy(
        update={
            "inputs": (
                spec.inputs[0],
                spec.inputs[1].model_copy(update={"fill": make_fill("value", value=5)}),
            )
        }
    )
    sets = choose_usual_sets(spec)
    assert int(draw_inputs(spec, sets[0], ROOT)["count"]) == 5
    nine = draw_inputs(spec, next(item for item in sets if item.name == "nine"), ROOT)
    assert int(nine["count"]) == 9
    assert nine["x"].shape == (8, 4)


def test_a_value_of_another_shape_fails_with_both_shapes() -> None:
    spec = make_contract(
        "Affine", cases=(Case(name="odd", fills={"x": Fill(kind="value", value=[1.0, 2.0])}),)
    )
    with pytest.raises(Failure) as caught:
        draw_inputs(
            spec, next(item for item in choose_usual_sets(spec) if item.kind == "case"), ROOT
        )
    assert "input 'x' of set 'odd': the values are torch.float32 [2]" in caught.value.message
    assert "declared float32 [3, 4]" in caught.value.message


def test_paths_build_tuples_dicts_and_keywords() -> None:
    spec = make_contract(
        "Affine",
        inputs=(
            declare_input("a", 2, at="args[0]"),
            declare_input("b", 2, at="args[1][0]"),
            declare_input("c", 2, at="args[1][1]"),
            declare_input("d", 2, at="kwargs.past[0].key"),
            declare_input("e", 2, at="kwargs.mask"),
        ),
        axes=(),
        constants=(
            Constant(at="args[2]", value=True),
            Constant(at="kwargs.past[0].size", value={"n": 3}),
        ),
    )
    call = build_call(spec, {name: name.upper() for name in "abcde"}, lambda value: value)
    assert call.args == ("A", ("B", "C"), True)
    assert call.kwargs == {"past": ({"key": "D", "size": {"n": 3}},), "mask": "E"}


def test_a_model_that_writes_into_its_input_changes_a_clone() -> None:
    spec = make_contract("Affine", axes=(Axis(name="batch", example=3),))
    tensors = draw_inputs(spec, declared_set(spec), ROOT)
    before = tensors["x"].clone()
    build_tensor_call(spec, tensors).args[0].zero_()
    assert torch.equal(tensors["x"], before)


_SIDES = ("left", "right", "random")
_SHAPES = [(1,), (7,), (1, 1), (1, 5), (3, 1), (2, 2), (4, 9), (2, 1, 5, 5)]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("shape", _SHAPES)
@pytest.mark.parametrize("side", _SIDES)
def test_every_row_has_an_allowed_element(side: str, shape: tuple[int, ...], seed: int) -> None:
    mask = draw_mask(side, shape, generator(seed))
    assert mask.dtype is torch.bool
    assert mask.shape == shape
    assert mask.any(-1).all()
    steps = mask.int().diff(dim=-1)
    if side == "right":
        assert (steps <= 0).all()
    if side == "left":
        assert (steps >= 0).all()


@pytest.mark.parametrize("seed", range(8))
def test_one_row_is_complete_and_others_are_padded(seed: int) -> None:
    mask = draw_mask("right", (4, 9), generator(seed))
    assert mask.all(-1).sum() == 1


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("count", "size"), [(1, 1), (1, 5), (3, 1), (2, 2), (4, 9)])
def test_lengths_are_inside_the_axis(count: int, size: int, seed: int) -> None:
    lengths = draw_lengths((count,), size, generator(seed))
    assert lengths.min() >= 1
    assert lengths.max() <= size
    assert count == 1 or lengths.max() == size


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_empty_masks_stay_empty(shape: tuple[int, int]) -> None:
    assert draw_mask("right", shape, generator(0)).shape == shape
    assert draw_lengths((3,), 0, generator(0)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", ["int64", "bool", "float32", "uint8"])
@pytest.mark.parametrize("kind", ["mask", "padding"])
def test_probes_of_masks_are_valid(kind: str, dtype: str) -> None:
    allowed = 1 if kind == "mask" else 0
    spec = make_contract(
        "Affine",
        inputs=(
            declare_input("m", "b", "n", dtype=dtype, fill=make_fill(kind, side="left")),
            declare_input("k", "b", dtype="int32", fill=make_fill("lengths_of", axis="n")),
        ),
        axes=(Axis(name="b", example=2), Axis(name="n", example=3)),
    )
    drawn = {}
    for chosen in choose_usual_sets(spec):
        tensors = draw_inputs(spec, chosen, ROOT)
        drawn[chosen.name] = tensors
        assert (tensors["m"] == allowed).any(-1).all()
        assert ((tensors["m"] == 0) | (tensors["m"] == 1)).all()
        assert 1 <= int(tensors["k"].min()) <= int(tensors["k"].max()) <= chosen.sizes["n"]
    declared = drawn["declared"]
    assert not torch.equal(drawn["other m"]["m"], declared["m"])
    assert not torch.equal(drawn["other k"]["k"], declared["k"])
