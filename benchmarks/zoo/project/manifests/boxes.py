"""Boxes of words on a page: left, top, right, bottom, with right >= left and bottom >= top."""

import torch
from torch import Tensor


def draw(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Draw boxes inside a page of 64 by 64."""
    corners = torch.randint(0, 32, (*shape[:-1], 2), generator=generator)
    sizes = torch.randint(0, 32, (*shape[:-1], 2), generator=generator)
    return torch.cat([corners, corners + sizes], dim=-1).to(dtype)
