"""Masks of padded positions: `True` if a position is padding, and the first never is."""

import torch
from torch import Tensor


def draw(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Draw sequences of different lengths, padded at the end."""
    lengths = torch.randint(1, shape[-1] + 1, (*shape[:-1], 1), generator=generator)
    return (torch.arange(shape[-1]).expand(shape) >= lengths).to(dtype)
