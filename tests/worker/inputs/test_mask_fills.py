"""Masks and lengths are valid at every size, and other draws are other valid ones."""

from __future__ import annotations

import pytest
import torch

from exporter.manifest import Axis
from exporter.worker.inputs.input_sets import choose_usual_sets
from exporter.worker.inputs.input_tensors import draw_inputs, draw_lengths, draw_mask
from tests.worker.contracts import ROOT, declare_input, make_contract, make_fill

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
