"""The values of the fills `mask`, `padding` and `lengths_of`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from exporter.manifest import Fill


def draw_mask_fill(
    fill: Fill, shape: Sequence[int], sizes: Mapping[str, int], generator: torch.Generator
) -> torch.Tensor:
    """Return the values of one of the fills of this module.

    Args:
        fill: The fill.
        shape: The shape of the input.
        sizes: The size of each axis.
        generator: The source of random numbers.
    """
    if fill.kind == "lengths_of":
        return draw_lengths(shape, sizes[fill.axis], generator)
    mask = draw_mask(fill.side, shape, generator)
    return mask if fill.kind == "mask" else ~mask


def draw_lengths(shape: Sequence[int], size: int, generator: torch.Generator) -> torch.Tensor:
    """Return integers from 1 to `size`; of several, one is `size` and the others are smaller.

    Returns:
        Zeros if the size is 0.
    """
    count = math.prod(shape)
    if count <= 1 or size <= 1:
        end = size + 1 if size else 1
        return torch.randint(min(size, 1), end, tuple(shape), generator=generator)
    lengths = torch.randint(1, size, (count,), generator=generator)
    lengths[int(torch.randint(0, count, (), generator=generator))] = size
    return lengths.reshape(tuple(shape))


def pad_rows(mask: torch.Tensor) -> torch.Tensor:
    """Return the mask with only the first element of each row, and a complete first row."""
    rows = torch.zeros_like(mask)
    rows[..., :1] = mask[..., :1]
    rows[0] = mask[0]
    return rows


def draw_mask(side: str, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Return True for allowed elements; the last axis of the shape is a row.

    Args:
        side: The side of the padding: `left`, `right` or `random`.
        shape: The shape of the mask.
        generator: The source of random numbers.
    """
    *rows, size = shape
    if not math.prod(shape):
        return torch.ones(tuple(shape), dtype=torch.bool)
    if side == "random":
        mask = torch.rand(tuple(shape), generator=generator) < 0.5
        allowed = torch.randint(0, size, (*rows, 1), generator=generator)
        return mask.scatter(-1, allowed, True)
    lengths = draw_lengths(rows, size, generator).unsqueeze(-1)
    positions = torch.arange(size)
    return positions < lengths if side == "right" else positions >= size - lengths
