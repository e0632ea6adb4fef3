"""The ends of the ranges of fills: values that hardly any draw contains.

A model may treat the lowest token, the exact value 1.0 or a mask without any True in a special
way. A trace keeps the branch of its example, and draws within the range do not reveal it.
"""

from __future__ import annotations

import torch

from exporter.manifest import Fill, Input
from exporter.worker.inputs.input_sets import RangeEnd


def set_range_ends(
    item: Input, fill: Fill, declared: torch.Tensor, end: RangeEnd, generator: torch.Generator
) -> torch.Tensor:
    """Return the declared values with one element at an end of the range, or at each end.

    All elements of a boolean become equal, if the fill can draw them. Integers of 0 and 1 become
    all 1 only, because a mask that allows no element has no defined result.

    Returns:
        The declared values if the fill has no range.
    """
    match fill.kind:
        case "uniform":
            ends = {"lowest": fill.low, "highest": fill.high}
        case "randint":
            ends = {"lowest": int(fill.low), "highest": int(fill.high) - 1}
        case "bernoulli":
            return _fill_mask(item, fill, declared, end)
        case _:
            return declared
    names = list(ends) if end == "both" else [end]
    values = declared.flatten().clone()
    order = torch.randperm(values.numel(), generator=generator)
    for index, name in zip(order.tolist(), names, strict=False):
        values[index] = ends[name]
    return values.reshape(declared.shape)


def _fill_mask(item: Input, fill: Fill, declared: torch.Tensor, end: RangeEnd) -> torch.Tensor:
    if end == "highest" and fill.probability > 0:
        return torch.ones_like(declared)
    if end == "lowest" and fill.probability < 1 and item.dtype == "bool":
        return torch.zeros_like(declared)
    return declared
