"""Turn tensors by name into the arguments of a call, and tensors into arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from exporter.manifest import ModelSpec
from exporter.manifest.syntax.values import assemble_call

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one call of the model."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def build_call(spec: ModelSpec, leaves: Mapping[str, Any], constant: Callable[[Any], Any]) -> Call:
    """Return a call with each leaf and each constant at the position of its `at`.

    `leaves`: The tensor or its replacement, by input name. An optional input without a leaf is
    None.
    """
    values: list[tuple[str, Any]] = [
        (item.at, leaves[item.name] if item.name in leaves or not item.optional else None)
        for item in spec.inputs
    ]
    values += [(fixed.at, constant(fixed.value)) for fixed in spec.constants]
    types = {container.at: container.type for container in spec.containers}

    def create(type: str, items: Any) -> Any:
        # By default, indices give a tuple and keys give a dict.
        return items if type == "list" or isinstance(items, dict) else tuple(items)

    args, kwargs = assemble_call(values, types, create)
    return Call(args=args, kwargs=kwargs)


def build_tensor_call(spec: ModelSpec, tensors: Tensors) -> Call:
    """Return the call with a clone of each tensor, because a model may change its inputs.

    An integer argument is a Python number, which is symbolic under dynamo. Other numbers stay
    tensors, because dynamo would convert them to constants: `CallObjectWrapper` reads their
    values. TorchScript's compiler accepts all kinds of numbers.
    """
    is_script = spec.capture == "script"
    leaves: dict[str, Any] = {name: tensor.clone() for name, tensor in tensors.items()}
    for item in spec.inputs:
        if item.scalar and (is_script or item.dtype == "int64"):
            leaves[item.name] = tensors[item.name].item()
    return build_call(spec, leaves, lambda value: value)


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
    """Return a tensor with a copy of the values; bfloat16 is copied by its bits.

    `is_complex`: Whether the last dimension has real and imaginary parts.
    """
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("uint16").copy()).view(torch.bfloat16)
    tensor = torch.from_numpy(array.copy())
    return torch.complex(tensor[..., 0], tensor[..., 1]) if is_complex else tensor
