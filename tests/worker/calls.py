"""Functions that make whole calls, each sound or wrong in one way."""

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
    """Holds a tensor and a number."""

    inner: Tensor
    size: int = 3


class Two(NamedTuple):
    """Holds two tensors."""

    first: Tensor
    second: Tensor


class Odd:
    """Holds nothing that anybody could see."""


_COUNT = itertools.count()


def sized(sizes: Mapping[str, int]) -> Call:
    """Tensors of these sizes, drawn."""
    batch = sizes["batch"]
    x, pair = torch.randn(batch, 4), [torch.randn(batch, 4), None]
    return (x, pair, {"box": Box(inner=torch.randn(batch, 4))}), {"flag": True, "empty": []}


def fixed() -> Call:
    """The same of one size."""
    return sized({"batch": 5})


def tuples() -> Call:
    """A named tuple."""
    return (Two(torch.ones(2, 4), torch.zeros(2, 4)),), {}


def flagged() -> Call:
    """The same with another flag."""
    args, kwargs = fixed()
    return args, {**kwargs, "flag": False}


def shorter() -> Call:
    """One argument less."""
    args, kwargs = fixed()
    return args[:2], kwargs


def restless() -> Call:
    """Other values in each call, whatever the seed."""
    args, kwargs = fixed()
    return (torch.full((5, 4), float(next(_COUNT))), *args[1:]), kwargs


def doubled() -> Call:
    """Another dtype."""
    args, kwargs = fixed()
    return (torch.ones(5, 4, dtype=torch.float64), *args[1:]), kwargs


def uneven() -> Call:
    """Two sizes for one axis."""
    args, kwargs = fixed()
    return (torch.ones(6, 4), *args[1:]), kwargs


def bare() -> Tensor:
    """No call."""
    return torch.ones(3)


def odd() -> Call:
    """An object that no table could name."""
    return (torch.ones(3), Odd()), {}


def spoken() -> Call:
    """A key that is no name."""
    return ({"a b": torch.ones(3)},), {}


def failing() -> Call:
    """Raises."""
    raise RuntimeError("no data here")
