"""Other values for an input, so that what a trace kept of the declared ones shows.

In: a fill and the declared values. Out: other values that the same fill could have given.

They lie across the middle of the fill's range, element by element: the sign of a sum, of a mean or
of any one element changes where a fresh draw would leave it as it is in half of all models, and
with it the branch that the model takes. Distances from the middle are drawn anew.
"""

from __future__ import annotations

import torch

from exporter.manifest import Fill
from exporter.worker.inputs.input_sets import InputSet


def mirror_values(
    fill: Fill, declared: torch.Tensor, generator: torch.Generator
) -> torch.Tensor | None:
    """Values on the other side of the middle, at half to all of their distance from it.

    Returns:
        None where the fill has no middle, or where nothing would change.
    """
    match fill.kind:
        case "normal":
            middle = 0.0
        case "uniform":
            middle = (fill.low + fill.high) / 2
        case "randint":
            middle = (fill.low + fill.high - 1) / 2
        case _:
            return None
    factor = 0.5 + torch.rand(declared.shape, generator=generator) / 2
    wide = torch.complex128 if declared.is_complex() else torch.float64
    values = middle - (declared.to(wide) - middle) * factor
    if not (declared.is_floating_point() or declared.is_complex()):
        values = values.round()
    perturb_values = values.to(declared.dtype)
    return None if torch.equal(perturb_values, declared) else perturb_values


def perturb_values(
    tensor: torch.Tensor, redrawn: torch.Tensor | None, chosen: InputSet
) -> torch.Tensor:
    """The values of the input that a set changes.

    Args:
        tensor: The declared values.
        redrawn: Other values of its fill, where that has any.
        chosen: Says how they are changed.
    """
    if chosen.factor != 1.0:
        return tensor * chosen.factor
    return choose_nearby_values(tensor, increment=chosen.increment) if redrawn is None else redrawn


def choose_nearby_values(tensor: torch.Tensor, *, upwards: int = 0) -> torch.Tensor:
    """Other values where no seed gives them, near the given ones: most indices stay in range.

    Args:
        tensor: The declared values.
        upwards: How much larger integers are instead, in range or not.
    """
    if not tensor.numel():
        return tensor  # nothing in it can be another value
    if upwards:
        return tensor + upwards
    flipped = tensor.flatten().flip(0).reshape(tensor.shape)
    if not torch.equal(flipped, tensor):
        return flipped
    if tensor.dtype is torch.bool:
        return ~tensor
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor * 1.5 + 0.25
    # Towards 0: the last of some rows has one before it, and none after it.
    return tensor - 1 if int(tensor.min()) > 0 else tensor + 1
