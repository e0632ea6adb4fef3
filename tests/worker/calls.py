"""Functions that build calls, each valid or invalid in one way."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

Call = tuple[tuple[object, ...], dict[str, object]]


@dataclass
class Box:
    inner: Tensor
    size: int = 3


class TensorPair(NamedTuple):
    first: Tensor
    second: Tensor


class OpaqueObject:
    """An object without fields."""


_COUNT = itertools.count()


def build_with_sizes(sizes: Mapping[str, int]) -> Call:
    batch = sizes["batch"]
    x, pair = torch.randn(batch, 4), [torch.randn(batch, 4), None]
    return (x, pair, {"box": Box(inner=torch.randn(batch, 4))}), {"flag": True, "empty": []}


def build_ids(sizes: Mapping[str, int]) -> Call:
    """Return a call with indices of a table of 7 rows and a mask."""
    shape = (sizes["batch"], 4)
    return (torch.randint(0, 7, shape), torch.rand(shape) < 0.5), {}


def build_fixed() -> Call:
    """Return the same call with batch size 5."""
    return build_with_sizes({"batch": 5})


def build_named_tuple() -> Call:
    """Return a call with a named tuple."""
    return (TensorPair(torch.ones(2, 4), torch.zeros(2, 4)),), {}


def build_other_flag() -> Call:
    args, kwargs = build_fixed()
    return args, {**kwargs, "flag": False}


def build_two_arguments() -> Call:
    args, kwargs = build_fixed()
    return args[:2], kwargs


def build_random() -> Call:
    args, kwargs = build_fixed()
    return (torch.full((5, 4), float(next(_COUNT))), *args[1:]), kwargs


def build_float64() -> Call:
    args, kwargs = build_fixed()
    return (torch.ones(5, 4, dtype=torch.float64), *args[1:]), kwargs


def build_unequal_sizes() -> Call:
    """Return the call with two sizes for one axis."""
    args, kwargs = build_fixed()
    return (torch.ones(6, 4), *args[1:]), kwargs


def build_tensor_only() -> Tensor:
    return torch.ones(3)


def build_unknown_object() -> Call:
    return (torch.ones(3), OpaqueObject()), {}


def build_invalid_key() -> Call:
    return ({"a b": torch.ones(3)},), {}


def raise_error() -> Call:
    raise RuntimeError("no data here")


def build_cache() -> Call:
    """Return new tokens, a cache, and a mask over both."""
    return (torch.randn(5, 4), torch.randn(2, 4), torch.randn(7, 4)), {}


def build_short_mask() -> Call:
    """Return a mask that is one shorter than both."""
    return (torch.randn(5, 4), torch.randn(2, 4), torch.randn(6, 4)), {}


def build_sized_cache(sizes: dict[str, int]) -> Call:
    """Return the same with sizes of the contract."""
    shapes = [(sizes[name], 4) for name in ("seq", "past", "total")]
    return tuple(torch.randn(shape) for shape in shapes), {}
