"""Booleans and integers of 0 and 1, which may be masks, and the elements that a probe may change.

A softmax over a row without any allowed element has no defined result. Implementations return 0,
NaN or a uniform mixture. The manifest promises nothing about such rows, and a probe must not
create one, whether 0 or 1 means allowed.
"""

from __future__ import annotations

import torch

_SEED = 0
#: The share of the elements to change.
_SHARE = 0.5


def is_binary(tensor: torch.Tensor) -> bool:
    """Return True for booleans, and for integers that are all 0 or 1."""
    if tensor.dtype is torch.bool:
        return True
    if tensor.is_floating_point() or tensor.is_complex():
        return False
    return bool(((tensor == 0) | (tensor == 1)).all())


def choose_binary_changes(tensor: torch.Tensor) -> torch.Tensor:
    """Return True for the elements of a binary tensor that a probe changes.

    In every row, along every axis, an unchanged element of each value remains. Along the last axis
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
