"""How far outputs are apart."""

from __future__ import annotations

import math

import pytest
import torch

from exporter.worker.rounding import difference, spread
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
    found = difference(contract("Affine"), tensors(one), tensors(other))
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
    assert spread(tensors(declared), [tensors(other)]) == (moved,)


def test_without_another_run_of_its_shape_nothing_is_known() -> None:
    assert spread(tensors([1.0]), []) == (None,)
    assert spread(tensors([1.0]), [tensors([1.0, 2.0])]) == (None,)


def test_an_integer_may_move_at_another_size_alone() -> None:
    still = tensors([1, 1])
    assert spread(still, [still], [tensors([1, 1, 1])]) == (0.0,)
    assert spread(still, [still], [tensors([1, 1, 2])]) == (1.0,)
    assert spread(tensors([1.0]), [tensors([1.0])], [tensors([2.0, 3.0])]) == (0.0,)
