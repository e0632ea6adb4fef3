"""Special values stay inside the fill, and draws hardly ever contain them."""

from __future__ import annotations

import pytest
import torch

from exporter.manifest import Fill, Input
from exporter.worker.inputs.input_sets import Special
from exporter.worker.inputs.input_tensors import set_special_values
from tests.worker.contracts import declare_input, make_fill

NORMAL = make_fill("normal")
DRAWN = torch.randn((5, 8), generator=torch.Generator().manual_seed(1))


def set_values(
    fill: Fill, declared: torch.Tensor, special: Special, item: Input | None = None
) -> torch.Tensor:
    item = item or declare_input("x", 5, 8, fill=fill)
    return set_special_values(item, fill, declared, special, torch.Generator().manual_seed(0))


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
    assert torch.equal(set_values(NORMAL, torch.tensor(-1.0), "rising"), torch.tensor(-1.0))
    waves = torch.view_as_complex(DRAWN.reshape(5, 4, 2))
    assert torch.equal(set_values(NORMAL, waves, "rising"), waves)


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
