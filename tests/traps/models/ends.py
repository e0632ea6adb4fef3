"""Models with special values at the ends of the ranges of their inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PadToken(nn.Module):
    """Counts tokens, and returns zeros if Python finds the token 0."""

    def forward(self, ids: Tensor) -> Tensor:
        return ids * 0 if bool((ids == 0).any()) else ids * 2


class PadTokenAlike(nn.Module):
    """Makes the same choice inside the graph."""

    def forward(self, ids: Tensor) -> Tensor:
        return torch.where((ids == 0).any(), ids * 0, ids * 2)


class LastToken(nn.Module):
    """Returns the negative tokens if Python finds the last token."""

    def forward(self, ids: Tensor) -> Tensor:
        return -ids if bool((ids == 999).any()) else ids * 2


class FullLight(nn.Module):
    """Returns zeros if Python finds a value of exactly 1."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 0 if bool((x >= 1).any()) else x * 2


class FullLightAlike(nn.Module):
    """Makes the same choice inside the graph."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where((x >= 1).any(), x * 0, x * 2)


class Logarithm(nn.Module):
    """Has no finite value at 0."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(x)


class AllKept(nn.Module):
    """Ignores the mask if Python finds no False in it."""

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return x - 1 if bool(keep.all()) else x * keep


class NoneKept(nn.Module):
    """Ignores the mask if Python finds no True in it."""

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return x * keep if bool(keep.any()) else x - 1


class Kept(nn.Module):
    """Uses the mask always."""

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return torch.where(keep.any(), x * keep, x - 1)


class KeptShare(nn.Module):
    """Has no defined result for a row without any kept element."""

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return torch.softmax(x.masked_fill(~keep, -torch.inf), -1)
