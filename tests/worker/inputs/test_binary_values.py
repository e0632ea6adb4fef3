"""Probes of possible masks change some elements, and keep some in every row."""

from __future__ import annotations

import pytest
import torch

from exporter.worker.inputs.perturbation import (
    choose_binary_changes,
    choose_nearby_values,
    is_binary,
)

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
