"""Other values for the elements of inputs, which reveal constants of a trace."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch

from exporter.manifest import Fill
from exporter.worker.inputs.input_sets import InputSet

# Other values reveal constants that a trace stored. Each element is mirrored at the middle of the
# fill's range. That changes the sign of sums, means and elements, and with it the branch of the
# model. A new draw keeps that sign in half of all models. The distances from the middle are drawn
# again.
_SEED = 0
#: The share of the elements to change.
_SHARE = 0.5
#: A float of one of two values is masked from here on, as in a mask that is added to logits.
_MASKED = -1e4


def is_binary(tensor: torch.Tensor) -> bool:
    """Return True for booleans, and for integers that are all 0 or 1."""
    if tensor.dtype is torch.bool:
        return True
    if tensor.is_floating_point() or tensor.is_complex():
        return False
    return bool(((tensor == 0) | (tensor == 1)).all())


def choose_binary_changes(tensor: torch.Tensor) -> torch.Tensor:
    """Return True for the elements of a binary tensor that a probe changes.

    A mask row without any allowed element has no defined result, whether 0 or 1 means allowed. So
    in every row, along every axis, an unchanged element of each value remains. Along the last axis
    the first one remains: an element of a causal mask sees only the elements before it. A single
    element changes. Along the only axis the last element remains instead, because models read the
    first one as a number.
    """
    axes = [axis for axis, size in enumerate(tensor.shape) if size > 1]
    if not axes:
        return torch.ones_like(tensor, dtype=torch.bool)
    *outer, row = axes
    values = tensor.to(torch.bool)
    is_single_axis = tensor.ndim == 1 or row < tensor.ndim - 1
    find_anchor = _find_last if is_single_axis else _find_first
    anchors = find_anchor(values, row) | find_anchor(~values, row)
    generator = torch.Generator().manual_seed(_SEED)
    changes = (torch.rand(tensor.shape, generator=generator) < _SHARE) & ~anchors
    is_unchanged = ~changes.any(row, keepdim=True)
    changes |= _find_last(~anchors, row) & is_unchanged
    for axis in outer:
        for members in (values, ~values):
            unchanged = members & ~changes
            is_lost = members.any(axis, keepdim=True) & ~unchanged.any(axis, keepdim=True)
            changes &= ~(_find_first(members, axis) & is_lost)
    return changes


def _find_first(members: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the first True of each row along an axis."""
    return members & (members.cumsum(axis) == 1)


def _find_last(members: torch.Tensor, axis: int) -> torch.Tensor:
    return _find_first(members.flip(axis), axis).flip(axis)


def mirror_values(
    fill: Fill, declared: torch.Tensor, generator: torch.Generator
) -> torch.Tensor | None:
    """Return values on the other side of the middle, at 0.5 to 1 of the distance.

    The result is None if the fill has no middle or if no value changes.
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
    mirrored = _mirror(declared, middle, generator)
    return None if torch.equal(mirrored, declared) else mirrored


def _mirror(declared: torch.Tensor, middle: float, generator: torch.Generator) -> torch.Tensor:
    factor = 0.5 + torch.rand(declared.shape, generator=generator) / 2
    wide = declared.to(torch.complex128 if declared.is_complex() else torch.float64)
    values = torch.where(wide.isfinite(), middle - (wide - middle) * factor, wide)
    if not (declared.is_floating_point() or declared.is_complex()):
        values = values.round()
    return values.to(declared.dtype)


def perturb_values(
    tensor: torch.Tensor, changed: torch.Tensor | None, chosen: InputSet
) -> torch.Tensor:
    """Return the values of the input that a set changes.

    `changed`: Other values of the same fill, if it can generate them.
    """
    if chosen.factor != 1.0:
        return tensor * chosen.factor
    if changed is not None:
        return changed
    return choose_nearby_values(tensor, increment=chosen.increment)


def choose_nearby_values(tensor: torch.Tensor, *, increment: int = 0) -> torch.Tensor:
    """Return other values within the range of the given ones, such that indices stay valid.

    Values of 0 and 1 may be a mask, so every row keeps some of them. Other values that are sorted
    along an axis stay sorted, and integers keep their ends: they may be boundaries or offsets.

    `increment`: The number to add to integers, even if the sum is out of range.
    """
    if not tensor.numel():
        return tensor
    if tensor.is_complex():
        return torch.view_as_complex(choose_nearby_values(torch.view_as_real(tensor)))
    wide = tensor.to(torch.float64)
    low, high = (0.0, 1.0) if is_binary(tensor) else (float(wide.min()), float(wide.max()))
    is_mask = is_binary(tensor) or (low <= _MASKED and bool(((wide == low) | (wide == high)).all()))
    if is_mask and not (increment and bool(tensor.all())):
        changes = choose_binary_changes(wide == high)
        if increment:
            return tensor + increment * changes.to(tensor.dtype)
        if changes.any():
            swapped = torch.where(wide == high, low, high)
            return torch.where(changes, swapped, wide).to(tensor.dtype)
        # A row of integers without a free element may be boundaries.
        is_mask = tensor.ndim > 1 or tensor.dtype is torch.bool or tensor.is_floating_point()
    elif increment:
        return tensor + increment
    others = _list_other_values(tensor, is_mask=is_mask)
    return next((each for each in others if not torch.equal(each, tensor)), tensor)


def _list_other_values(tensor: torch.Tensor, *, is_mask: bool) -> Iterator[torch.Tensor]:
    if not is_mask:
        yield _mirror_in_range(tensor)
    all_axes = tuple(range(tensor.ndim))
    # Rows of a mask that change places stay valid, reversed rows may not.
    for axes in (*(() if is_mask else (all_axes,)), *((axis,) for axis in all_axes)):
        flipped = tensor.flip(axes)
        yield flipped if is_mask else _keep_order(tensor, flipped)
    if tensor.is_floating_point():
        yield tensor * 1.5 + 0.25
    else:
        # Subtract first: the last index of a table has a smaller neighbor only.
        yield tensor - 1 if int(tensor.min()) > 0 else tensor + 1


def _mirror_in_range(declared: torch.Tensor) -> torch.Tensor:
    """Return values mirrored at the middle of the declared ones, in their order."""
    wide = declared.to(torch.float64)
    finite = wide[wide.isfinite()]
    low, high = finite.aminmax() if finite.numel() else (wide.new_zeros(()),) * 2
    generator = torch.Generator().manual_seed(_SEED)
    return _keep_order(declared, _mirror(declared, float(low + high) / 2, generator))


def _keep_order(declared: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Return the changed values, sorted along each axis along which the declared ones are."""
    is_end = (declared == declared.min()) | (declared == declared.max())
    for axis, descending in product(range(declared.ndim), (False, True)):
        if torch.equal(declared.sort(axis, descending=descending).values, declared):
            if not declared.is_floating_point():
                changed = declared.where(is_end, changed)
            changed = changed.sort(axis, descending=descending).values
    return changed
