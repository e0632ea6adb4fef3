"""Perturbed and special values: the other side of a range, and its edges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from exporter.manifest import Fill, Input
from exporter.worker.inputs.input_sets import InputSet, Special, choose_usual_sets
from exporter.worker.inputs.input_tensors import draw_inputs, set_special_values
from exporter.worker.inputs.other_values import (
    choose_binary_changes,
    choose_nearby_values,
    is_binary,
    mirror_values,
)
from tests.worker.contracts import ROOT, declare_input, make_contract, make_fill


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def test_normal_values_change_their_signs_and_their_sizes() -> None:
    declared = torch.randn(200, generator=generator())
    other = mirror_values(make_fill("normal"), declared, generator())
    assert other is not None
    assert (other.sign() == -declared.sign()).all()
    assert ((other.abs() / declared.abs()) <= 1.0).all()
    assert ((other.abs() / declared.abs()) >= 0.5).all()
    assert (other.abs() / declared.abs()).std() > 0.1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_mirrored_values_have_the_declared_dtype(dtype: torch.dtype) -> None:
    other = mirror_values(make_fill("normal"), torch.ones(3, dtype=dtype), generator())
    assert other is not None
    assert other.dtype is dtype


def test_uniform_values_stay_in_their_range_and_cross_its_middle() -> None:
    declared = torch.rand(200, generator=generator()) + 2
    other = mirror_values(make_fill("uniform", low=2.0, high=3.0), declared, generator())
    assert other is not None
    assert other.min() >= 2.0
    assert other.max() <= 3.0
    assert ((other > 2.5) == (declared < 2.5)).all()


@pytest.mark.parametrize(("low", "high"), [(0, 2), (5, 8), (-3, 100)])
def test_integers_stay_in_their_range_and_change(low: int, high: int) -> None:
    declared = torch.randint(low, high, (200,), generator=generator())
    other = mirror_values(make_fill("randint", low=low, high=high), declared, generator())
    assert other is not None
    assert other.dtype is torch.int64
    assert other.min() >= low
    assert other.max() < high
    middle = (low + high - 1) / 2
    away = declared != middle
    assert ((other - middle).sign() == -(declared - middle).sign())[away].all()


def test_unchangeable_values_have_no_mirrored_values() -> None:
    in_the_middle = torch.tensor([2, 2])
    assert mirror_values(make_fill("randint", low=0, high=5), in_the_middle, generator()) is None
    assert mirror_values(make_fill("bernoulli"), torch.tensor([1, 0]), generator()) is None


def test_an_integer_in_the_middle_changes_too() -> None:
    spec = make_contract(
        "Affine",
        inputs=(declare_input("x", 50, dtype="int64", fill=make_fill("randint", low=4, high=7)),),
        axes=(),
    )
    declared, other, *_ = (
        draw_inputs(spec, chosen, ROOT)["x"] for chosen in choose_usual_sets(spec)
    )
    assert (declared != other).any()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 9.0, 1.0, 2.0], [8.0, 1.5, 7.2, 6.7]),
        ([0.0, 1.0, 3.0, math.inf], [0.7, 1.9, 2.6, math.inf]),
        ([0, 2, 5], [0, 3, 5]),
        ([7, 5, 3], [6, 4, 2]),
        ([[0.0, -math.inf], [0.0, 0.0]], [[0.0, 0.0], [0.0, -math.inf]]),
        ([[0.0, -1e9, 0.0]], [[0.0, -1e9, -1e9]]),
        ([0, 1], [1, 2]),
        ([3], [2]),
        ([0], [1]),
        ([-1], [0]),
        ([True], [False]),
        ([1 + 2j, 3 - 1j], [1 + 0.1j, -0.1 + 2.1j]),
    ],
)
def test_fixed_values_change_inside_their_range_and_keep_their_order(
    values: list[Any], expected: list[Any]
) -> None:
    declared = torch.tensor(values)
    other = choose_nearby_values(declared)
    torch.testing.assert_close(other, torch.tensor(expected), rtol=0, atol=0.1)


def test_the_increment_is_added_to_integers() -> None:
    assert choose_nearby_values(torch.tensor(5), increment=2).item() == 7
    assert choose_nearby_values(torch.arange(3), increment=2).tolist() == [2, 3, 4]


def test_a_fixed_integer_has_a_smaller_and_a_larger_value() -> None:
    count = declare_input(
        "n", at="args[1]", shape=(), dtype="int64", fill=make_fill("value", value=5)
    )
    spec = make_contract("Affine", inputs=(declare_input("x", 4), count), axes=())
    chosen_sets = [chosen for chosen in choose_usual_sets(spec) if not chosen.special]
    sets = {chosen.name: chosen for chosen in chosen_sets}
    assert list(sets) == ["declared", "other x", "other n", "larger n"]
    values = {name: int(draw_inputs(spec, chosen, ROOT)["n"]) for name, chosen in sets.items()}
    assert values == {"declared": 5, "other x": 5, "other n": 4, "larger n": 7}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize("increment", [0, 2])
def test_an_empty_tensor_stays_empty(dtype: torch.dtype, increment: int) -> None:
    empty = torch.zeros((3, 0), dtype=dtype)
    assert choose_nearby_values(empty, increment=increment).shape == (3, 0)


_SHAPES = [(3, 7), (2, 2), (1, 2), (1, 9), (7, 2), (3, 1), (4,), (2, 1, 5, 5), (2, 5, 1), (1, 1, 3)]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8])
@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("shape", _SHAPES)
def test_every_row_and_column_keeps_an_element(
    shape: tuple[int, ...], value: int, dtype: torch.dtype
) -> None:
    mask = torch.full(shape, value, dtype=dtype)
    other = choose_nearby_values(mask)
    assert other.dtype is dtype
    assert not torch.equal(other, mask)
    assert is_binary(other)
    for axis, size in enumerate(shape):
        if size > 1:
            assert (other == mask).any(axis).all()


@pytest.mark.parametrize("shape", [(3, 7), (2, 1, 5, 5), (1, 4)])
def test_a_causal_row_keeps_its_first_element(shape: tuple[int, ...]) -> None:
    mask = torch.ones(shape, dtype=torch.int64)
    assert (choose_nearby_values(mask)[..., 0] == 1).all()


def test_every_row_changes() -> None:
    assert choose_binary_changes(torch.ones(3, 7)).any(-1).all()


def test_the_first_number_of_a_list_changes() -> None:
    assert choose_nearby_values(torch.tensor([True, True])).tolist() == [False, True]
    assert choose_nearby_values(torch.zeros(3, 1, dtype=torch.int64))[0].item() == 1


def test_padding_on_both_sides_keeps_its_first_allowed_element() -> None:
    for mask in (torch.tensor([[0, 0, 1, 1, 1]]), torch.tensor([[1, 1, 1, 0, 0]])):
        other = choose_nearby_values(mask)
        assert other[0, int(mask.argmax())] == 1
        assert other[0, int(mask.argmin())] == 0
        assert not torch.equal(other, mask)


def test_rows_without_a_free_element_change_places() -> None:
    assert choose_nearby_values(torch.tensor([[1, 0], [0, 1]])).tolist() == [[0, 1], [1, 0]]


def test_larger_integers_keep_a_zero_in_each_row() -> None:
    larger = choose_nearby_values(torch.zeros(3, 7, dtype=torch.int64), increment=2)
    assert larger.unique().tolist() == [0, 2]
    assert (larger == 0).any(-1).all()
    assert (choose_nearby_values(torch.ones(3, 7, dtype=torch.int64), increment=2) == 3).all()


@pytest.mark.parametrize("values", [[0.0, 1.0], [0, 2], [1 + 0j]])
def test_other_values_are_not_binary(values: list[complex]) -> None:
    assert not is_binary(torch.tensor(values))


NORMAL = make_fill("normal")
DRAWN = torch.randn((5, 8), generator=torch.Generator().manual_seed(1))


def set_values(
    fill: Fill,
    declared: torch.Tensor,
    special: Special,
    item: Input | None = None,
    numbers: tuple[float, ...] = (),
) -> torch.Tensor:
    item = item or declare_input("x", 5, 8, fill=fill)
    chosen = InputSet(name="", kind="values", sizes={}, special=special, numbers=numbers)
    return set_special_values(item, fill, declared, chosen, torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("fill", "numbers", "expected"),
    [
        (make_fill("normal"), (3.0,), {3.0, -3.0, 6.0, -6.0}),
        (make_fill("uniform", low=0.0, high=1.0), (0.3, 2.0), {0.3, 0.6, 0.9}),
        (make_fill("randint", low=0, high=1000), (400.0, 0.5), {400, 800}),
    ],
)
def test_multiples_of_numbers_are_inside_the_range(
    fill: Fill, numbers: tuple[float, ...], expected: set[float]
) -> None:
    declared = torch.full((5, 8), 7 if fill.kind == "randint" else 0.123)
    values = set_values(fill, declared, "multiples", numbers=numbers)
    changed = set(values[values != declared].tolist())
    assert {round(each, 4) for each in changed} == expected


def test_a_few_numbers_are_at_the_ends_and_exact() -> None:
    values = set_values(NORMAL, DRAWN, "ends")
    changed = values[:-1][values[:-1] != DRAWN[:-1]]
    assert {-6.5, 0.0, 0.5, 6.5} <= set(changed.tolist()) <= {-6.5, 0.0, 0.5, 1.0, 2.5, 6.5}
    assert bool((values[-1] <= 0).all())
    assert bool((values[:-1] > 0).any())


def test_a_single_row_keeps_its_signs() -> None:
    row = DRAWN[:1, :1].abs() * torch.ones(1, 8)
    assert int((set_values(NORMAL, row, "ends") > 0).sum()) >= 6


@pytest.mark.parametrize(
    ("fill", "expected"),
    [
        (make_fill("randint", low=0, high=1000), {0, 1, 2, 999}),
        (make_fill("randint", low=4, high=7), {4, 6}),
        (make_fill("uniform", low=0.25, high=0.5), {0.25, 0.5}),
        (make_fill("uniform", low=-1.0, high=0.5), {-1.0, 0.0, 0.5}),
    ],
)
def test_special_values_are_inside_the_range(fill: Fill, expected: set[float]) -> None:
    declared = torch.full((5, 8), 5.0 if fill.kind == "randint" else 0.3)
    values = set_values(fill, declared, "ends")
    assert set(values[values != declared].tolist()) == expected


@pytest.mark.parametrize(("special", "end"), [("highest", 6.5), ("lowest", -6.5)])
def test_a_single_number_has_one_end(special: Special, end: float) -> None:
    assert set_values(NORMAL, torch.tensor(0.5), special).tolist() == end


@pytest.mark.parametrize(
    ("fill", "value"),
    [
        (NORMAL, 0.0),
        (make_fill("uniform", low=-2.0, high=-1.0), -2.0),
        (make_fill("uniform", low=0.5, high=1.0), 0.5),
        (make_fill("randint", low=3, high=9), 3.0),
    ],
)
def test_equal_values_are_zeros_or_the_lowest(fill: Fill, value: float) -> None:
    assert set(set_values(fill, DRAWN, "constant").flatten().tolist()) == {value}


def test_rising_values_are_positive_and_sorted() -> None:
    values = set_values(NORMAL, DRAWN, "rising")
    assert bool((values > 0).all())
    assert torch.equal(values, values.sort(-1).values)
    assert torch.equal(values[::2][:2], values[1::2][:2])
    assert torch.equal(values, set_values(NORMAL, torch.zeros(5, 8), "rising"))
    assert torch.equal(set_values(NORMAL, torch.tensor(-1.0), "rising"), torch.tensor(-1.0))
    waves = torch.view_as_complex(DRAWN.reshape(5, 4, 2))
    assert torch.equal(set_values(NORMAL, waves, "rising"), waves)


@pytest.mark.parametrize("length", [2, 3, 4, 8, 64, 1000])
def test_sums_of_equal_rows_are_rounded_in_both_directions(length: int) -> None:
    row, _, other, _ = set_values(NORMAL, torch.zeros(4, length), "rising").numpy()
    for values, sign in ((row, 1), (other, -1)):
        product = np.float32(0)
        for each in values.astype(np.float64):
            product = np.float32(each * each + product)
        # One after the other, as a runtime without vectors adds.
        total = np.add.accumulate(values * values)[-1]
        assert np.sign(total - product) == sign


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0), (2, 3, 2000)])
def test_rising_values_have_the_declared_shape(shape: tuple[int, ...]) -> None:
    assert set_values(NORMAL, torch.zeros(shape), "rising").shape == shape


@pytest.mark.parametrize(
    ("fill", "declared", "expected"),
    [
        (Fill(kind="mask", side="right"), [[1, 1], [1, 0]], [[1, 1], [1, 1]]),
        (Fill(kind="padding", side="right"), [[0, 0], [0, 1]], [[0, 0], [0, 0]]),
        (Fill(kind="lengths_of", axis="n"), [2, 5], [5, 5]),
    ],
)
def test_a_mask_allows_all(fill: Fill, declared: object, expected: object) -> None:
    assert set_values(fill, torch.tensor(declared), "ends").tolist() == expected
    assert set_values(fill, torch.tensor(declared), "constant").tolist() == declared


def test_flags_are_equal_if_the_fill_can_draw_them() -> None:
    flags = torch.tensor([True, False])
    item = declare_input("keep", 2, dtype="bool", fill=make_fill("bernoulli"))
    assert set_values(item.fill, flags, "highest", item).tolist() == [True, True]
    assert set_values(item.fill, flags, "lowest", item).tolist() == [False, False]
    always = make_fill("bernoulli", probability=1.0)
    assert set_values(always, flags, "lowest", item).tolist() == [True, False]


def test_other_fills_stay_as_they_are() -> None:
    assert torch.equal(set_values(make_fill("ones"), DRAWN, "ends"), DRAWN)
