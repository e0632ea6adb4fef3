"""How far outputs are apart."""

from __future__ import annotations

import math

import pytest
import torch

from exporter.manifest import Output
from exporter.worker.reference import noise as rounding
from exporter.worker.reference.noise import compute_spread, describe_difference
from tests.worker.contracts import contract

NAN = math.nan


def tensors(*values: list[float] | list[int] | list[bool]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor(value) for value in values)


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        ([1.0, NAN], [1.0, NAN], ""),
        ([1.0, math.inf], [1.0, math.inf], ""),
        ([1, 2], [1, 2], ""),
        ([1.0, 2.0], [1.0, 2.5], "differs by 5.0e-01"),
        ([1.0, NAN], [1.0, 0.0], "differs by"),
        ([1.0, math.inf], [1.0, torch.finfo(torch.float32).max], "differs by"),
        ([1.0], [1.0, 2.0], "is [1] once and [2] then"),
    ],
)
def test_two_runs_are_equal_or_not(one: list[float], other: list[float], says: str) -> None:
    found = describe_difference(contract("Affine"), tensors(one), tensors(other))
    assert says in found
    assert bool(says) is bool(found)


@pytest.mark.parametrize(
    ("declared", "other", "moved"),
    [
        ([2.0, 4.0], [2.0, 3.0], 0.25),
        ([2.0, NAN], [2.0, NAN], 0.0),
        # Where a number stands for NaN, any file that keeps the NaN is caught.
        ([2.0, NAN], [NAN, 3.0], 1.0),
        ([1, 2], [1, 2], 0.0),
        ([1, 2], [1, 3], 1.0),
        ([True, False], [True, True], 1.0),
    ],
)
def test_how_far_an_output_moves(declared: list[float], other: list[float], moved: float) -> None:
    assert compute_spread(tensors(declared), [tensors(other)]) == (moved,)


def test_without_another_run_of_its_shape_nothing_is_known() -> None:
    assert compute_spread(tensors([1.0]), []) == (None,)
    assert compute_spread(tensors([1.0]), [tensors([1.0, 2.0])]) == (None,)


def test_an_integer_may_move_at_another_size_alone() -> None:
    still = tensors([1, 1])
    assert compute_spread(still, [still], [tensors([1, 1, 1])]) == (0.0,)
    assert compute_spread(still, [still], [tensors([1, 1, 2])]) == (1.0,)
    assert compute_spread(tensors([1.0]), [tensors([1.0])], [tensors([2.0, 3.0])]) == (0.0,)


def test_what_leaves_the_range_of_a_dtype_alone_is_told() -> None:
    half = torch.tensor([1.0, torch.inf, torch.nan, torch.inf], dtype=torch.float16)
    wide = torch.tensor([1.0, 7e4, 8e4, torch.inf], dtype=torch.float64)
    told = rounding.describe_overflow([((half, half), (wide, half.double())), ((half, half), None)])
    where = "2 of 4 elements are Inf or NaN where float64 has numbers up to 8.0e+04"
    assert told == (f"float16 overflows in PyTorch: {where}", "")


def test_of_a_list_each_item_counts() -> None:
    items = [torch.ones(2), torch.tensor([torch.inf])]
    exact = [torch.ones(2, dtype=torch.float64), torch.tensor([1e39], dtype=torch.float64)]
    assert rounding.describe_overflow([((items,), (exact,))])[0].startswith(
        "float32 overflows in PyTorch: 1"
    )


def _list(*values: float) -> list[torch.Tensor]:
    return [torch.tensor([float(value)]) for value in values]


def test_lists_differ_by_their_items() -> None:
    spec = contract("Affine", outputs=(Output(name="rows", shape=(1,), kind="sequence"),))
    assert rounding.describe_difference(spec, (_list(1, 2),), (_list(1, 2),)) == ""
    count = rounding.describe_difference(spec, (_list(1, 2),), (_list(1),))
    assert count == "output 'rows' has 2 items once and 1 then"
    apart = rounding.describe_difference(spec, (_list(1, 2),), (_list(1, 3),))
    assert apart == "item 1 of output 'rows' differs by 1.0e+00 between two runs on one input"


def test_a_list_moves_as_its_item_that_moves_furthest() -> None:
    declared, moved = _list(1, 2), _list(1, 3)
    assert rounding.compute_spread((declared,), [(moved,)]) == (0.5,)
    assert rounding.compute_spread((declared,), [(declared,)]) == (0.0,)
    # Another count tells nothing of how far values move.
    assert rounding.compute_spread((declared,), [(_list(1, 2, 3),)]) == (None,)


def test_the_noise_of_a_list_is_that_of_its_noisiest_item() -> None:
    declared = _list(1, 2)
    exact = [item.double() * (1 + 1e-6 * place) for place, item in enumerate(declared)]
    (noise,), why = rounding.compute_noise([((declared,), (exact,))])
    assert why == ""
    assert noise == pytest.approx(1e-6, rel=1e-3)
    (noise,), why = rounding.compute_noise([((declared,), (exact[:1],))])
    assert (noise, why) == (None, "output 0: it has another number of items in float64")
    assert rounding.compute_noise([(([],), ([],))]) == ((None,), "")


def test_the_scale_of_a_list_is_that_of_its_smallest_item() -> None:
    assert rounding.compute_scale(_list(3, 0, 0.5)) == 0.5
    assert rounding.compute_scale(_list(0)) == rounding.compute_scale([]) == 0.0
