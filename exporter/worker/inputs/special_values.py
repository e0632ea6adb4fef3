"""Values that hardly any draw contains: ends of ranges, exact zeros, equal and rising values.

A model may treat the lowest token, the exact value 0.0, an input without negative numbers or a
mask without any True in a special way. A trace keeps the branch of its example, and draws within
the range do not reveal it.
"""

from __future__ import annotations

from itertools import islice

import torch

from exporter.manifest import Fill, Input
from exporter.worker.inputs.input_sets import Special

#: A normal distribution has no end. One of ten billion draws is above 6.5, which `relu6` clips.
_NORMAL_END = 6.5
#: Numbers that models compare with, halves that are rounded, and the first special tokens.
_FLOATS, _INTEGERS = (0, 1, 0.5, 2.5), (0, 1, 2)
#: The share of the elements that get a special value, unless the ends need more.
_SHARE = 0.5


def set_special_values(
    item: Input, fill: Fill, declared: torch.Tensor, special: Special, generator: torch.Generator
) -> torch.Tensor:
    """Return the declared values with special ones among them, or special values only.

    All elements of a boolean become equal, if the fill can draw them. Integers of 0 and 1 become
    all 1 only, because a mask that allows no element has no defined result.

    Args:
        item: The input.
        fill: The fill, which can draw the special values.
        declared: The declared values.
        special: The kind of the values.
        generator: The source of the positions.

    Returns:
        The declared values if the fill has no such values.
    """
    match fill.kind:
        case "bernoulli":
            return _fill_flags(item, fill, declared, special)
        case "mask" | "padding" | "lengths_of":
            return declared if special in ("constant", "lowest") else _allow_all(fill, declared)
        case "normal" | "uniform" | "randint":
            return _set_numbers(fill, declared, special, generator)
        case _:
            return declared


def _set_numbers(
    fill: Fill, declared: torch.Tensor, special: Special, generator: torch.Generator
) -> torch.Tensor:
    low, high = _find_ends(fill)
    numbers = [low, high] if special == "ends" else [low if special == "lowest" else high]
    candidates = _INTEGERS if fill.kind == "randint" else _FLOATS
    inside = [number for number in candidates if low <= number <= high and number not in numbers]
    if special == "constant":
        return torch.full_like(declared, next(iter(inside), low) if low < 0 else low)
    if special == "rising":
        if declared.is_complex() or not declared.ndim:
            return declared
        return (declared.abs() if fill.kind == "normal" else declared).sort(-1).values
    values = declared.flatten().clone()
    order = torch.randperm(values.numel(), generator=generator)
    count = max(len(numbers), int(values.numel() * _SHARE))
    pairs = zip(order.tolist(), (*numbers, *inside), strict=False)
    for index, number in islice(pairs, count):
        values[index] = number
    return _lower_row(fill, values.reshape(declared.shape))


def _lower_row(fill: Fill, values: torch.Tensor) -> torch.Tensor:
    """Return the values with the last of several rows negative, if the fill can draw that."""
    rows = values.shape[0] if values.ndim > 1 else 0
    if fill.kind == "normal" and rows > 1 and not values.is_complex():
        values[-1] = -values[-1].abs()
    return values


def _find_ends(fill: Fill) -> tuple[float, float]:
    match fill.kind:
        case "normal":
            return -_NORMAL_END, _NORMAL_END
        case "randint":
            return int(fill.low), int(fill.high) - 1
        case _:
            return fill.low, fill.high


def _allow_all(fill: Fill, declared: torch.Tensor) -> torch.Tensor:
    """Return a mask without padding, or lengths that are all the largest one."""
    if not declared.numel():
        return declared
    return torch.full_like(
        declared, int(declared.min() if fill.kind == "padding" else declared.max())
    )


def _fill_flags(item: Input, fill: Fill, declared: torch.Tensor, special: Special) -> torch.Tensor:
    if special == "highest" and fill.probability > 0:
        return torch.ones_like(declared)
    if special == "lowest" and fill.probability < 1 and item.dtype == "bool":
        return torch.zeros_like(declared)
    return declared
