"""Models with sizes that follow from the sizes of their inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Cache(nn.Module):
    """Attends from new tokens to the tokens of a cache and to the new ones."""

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(4, 4)

    def count_past(self, past: Tensor) -> int:
        return past.shape[1]

    def forward(self, x: Tensor, past: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        keys = torch.cat([past, self.key(x)], 1)
        start = self.count_past(past)
        positions = torch.arange(start, start + x.shape[1])
        queries = x + positions[None, :, None] / 8
        scores = queries @ keys.transpose(1, 2) + mask[:, None]
        return scores.softmax(-1) @ keys, keys


class FixedCache(Cache):
    def count_past(self, past: Tensor) -> int:
        return int(past.shape[1])


class LongCache(Cache):
    def forward(self, x: Tensor, past: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        y, keys = super().forward(x, past, mask)
        return y, torch.cat([keys, keys[:, :1]], 1)


class Halved(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return functional.avg_pool1d(x, 2)


class Ends(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[:, :4], x[:, -4:]], 1)


class Window(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        rows = x[:, :64]
        return rows.reshape(-1, x.shape[1], 4).sum(1)
