"""Conversion between tensors of PyTorch and arrays of numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]


def view_as_real(tensor: torch.Tensor) -> torch.Tensor:
    """Return complex numbers as pairs along a last dimension, and other tensors unchanged."""
    # PyTorch marks a conjugated tensor with a flag, which `resolve_conj` applies.
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def to_numpy(tensor: torch.Tensor) -> Array:
    """Return the values as an array: bfloat16 by ml_dtypes, complex numbers as pairs."""
    tensor = view_as_real(tensor.detach().resolve_neg()).cpu().contiguous()
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    array: Array = tensor.numpy()
    return array


def from_numpy(array: Array, *, is_complex: bool = False) -> torch.Tensor:
    """Return a tensor with a copy of the values.

    Args:
        array: The values; bfloat16 is copied by its bits.
        is_complex: True if the last dimension has real and imaginary parts.
    """
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("uint16").copy()).view(torch.bfloat16)
    tensor = torch.from_numpy(array.copy())
    return torch.complex(tensor[..., 0], tensor[..., 1]) if is_complex else tensor
