"""Input sets of the independent judgement, inside the promises of a manifest.

Input: a `ModelSpec` and a seed. Output: tensors by input name. The sizes and the values are drawn
here and not by the program, so that both sides cannot share a mistake.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import torch
from torch import Tensor

from exporter.manifest import Axis, ModelSpec
from exporter.manifest.resolved.call import Fill, Input

#: The largest size of an axis without `max`, and of an axis whose `max` is larger.
_LARGEST = 24
#: Sizes that differ from each other, so that no two axes are confused in an example.
_EXAMPLES = (3, 5, 7, 11, 13)

Tensors = dict[str, Tensor]


def draw_sets(spec: ModelSpec, count: int = 6) -> Iterator[Tensors]:
    """Yield input sets: the example, the smallest sizes, the largest, then random ones."""
    for number in range(count):
        generator = torch.Generator().manual_seed(1000 + number)
        yield draw_inputs(spec, _draw_sizes(spec, number, generator), generator)


def draw_inputs(spec: ModelSpec, sizes: dict[str, int], generator: torch.Generator) -> Tensors:
    """Draw a value for each input at these sizes."""
    return {item.name: _draw_value(item, sizes, generator) for item in spec.inputs}


def _draw_sizes(spec: ModelSpec, number: int, generator: torch.Generator) -> dict[str, int]:
    names = dict.fromkeys(dim for item in spec.inputs for dim in item.shape if isinstance(dim, str))
    sizes = {}
    for place, name in enumerate(names):
        axis = spec.find_axis(name)
        step = axis.multiple_of
        low = max(-(-axis.min // step), 0)
        high = max(_find_largest(axis) // step, low)
        example = -(-(axis.example or 0) // step)
        if step == 1 and axis.min < 3:
            example = min(_EXAMPLES[place % len(_EXAMPLES)], high)
        drawn = int(torch.randint(low, high + 1, (), generator=generator))
        sizes[name] = step * [example, low, high, drawn][min(number, 3)]
    return sizes


def _find_largest(axis: Axis) -> int:
    limit = max(_LARGEST, 2 * axis.min, 3 * axis.multiple_of)
    return limit if axis.max is None else min(axis.max, limit)


def _draw_value(item: Input, sizes: dict[str, int], generator: torch.Generator) -> Tensor:
    shape = [sizes[dim] if isinstance(dim, str) else dim for dim in item.shape]
    dtype: torch.dtype = getattr(torch, item.dtype)
    fill: Fill = item.fill
    match fill.kind:
        case "normal":
            value = torch.randn(shape, generator=generator)
        case "uniform":
            value = torch.rand(shape, generator=generator) * (fill.high - fill.low) + fill.low
        case "randint":
            value = torch.randint(int(fill.low), int(fill.high), shape, generator=generator)
        case "bernoulli":
            value = torch.rand(shape, generator=generator) < fill.probability
        case "mask":
            value = _draw_mask(shape, fill.side, generator)
        case "padding":
            value = ~_draw_mask(shape, fill.side, generator)
        case "python":
            file, _, function = fill.python.partition(":")
            draw = getattr(importlib.import_module(file.removesuffix(".py")), function)
            value = draw(tuple(shape), dtype, generator)
        case _:
            message = f"{item.name}: the zoo draws no fill '{fill.kind}'; add it to draws.py"
            raise NotImplementedError(message)
    return value.to(dtype)


def _draw_mask(shape: list[int], side: str, generator: torch.Generator) -> Tensor:
    """Draw the mask of sequences of different lengths; none is empty."""
    size = shape[-1]
    lengths = torch.randint(1, size + 1, (*shape[:-1], 1), generator=generator)
    right = torch.arange(size).expand(shape) < lengths
    left = right.flip(-1)
    if side == "random":
        return torch.where(torch.rand(lengths.shape, generator=generator) < 0.5, right, left)
    return left if side == "left" else right
