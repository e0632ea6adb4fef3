"""Tensors of PyTorch as arrays of a file, and back.

In: a tensor. Out: an array of the same values, in the form that an ONNX file has them in: numpy
knows no bfloat16, and ONNX's operators take no complex numbers, so that these are pairs of real and
imaginary parts along one more dimension.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]


def view_as_real(tensor: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs along a last dimension of 2; other tensors as they are."""
    if not tensor.is_complex():
        return tensor
    # What a model conjugated is a flag on the tensor until somebody looks.
    return torch.view_as_real(tensor.resolve_conj())


def to_numpy(tensor: torch.Tensor) -> Array:
    """The same values in numpy; bfloat16 by way of ml_dtypes, complex numbers in pairs."""
    tensor = view_as_real(tensor.detach().resolve_neg()).cpu().contiguous()
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    found: Array = tensor.numpy()
    return found


def from_numpy(array: Array, *, is_complex: bool = False) -> torch.Tensor:
    """The same values in PyTorch.

    Args:
        array: bfloat16 goes by way of its bits.
        is_complex: Whether its last dimension holds real and imaginary parts.
    """
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("uint16").copy()).view(torch.bfloat16)
    tensor = torch.from_numpy(array.copy())
    return torch.complex(tensor[..., 0], tensor[..., 1]) if is_complex else tensor
