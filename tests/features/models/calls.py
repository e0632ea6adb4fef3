"""Models with other arguments than a sequence of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Keywords(nn.Module):
    def forward(self, x: Tensor, *, bias: Tensor, scale: float = 1.0) -> Tensor:
        return x * scale - bias


class Nested(nn.Module):
    """Takes a tuple that contains a dict."""

    def forward(self, x: Tensor, more: tuple[Tensor, Mapping[str, Tensor]]) -> Tensor:
        first, named = more
        return x + first * 2 - named["bias"] * 3


class Summed(nn.Module):
    """Takes a list of any length, and no tuple."""

    def forward(self, xs: list[Tensor]) -> Tensor:
        if not isinstance(xs, list):
            raise TypeError("expected a list")
        return torch.stack([x * (index + 1) for index, x in enumerate(xs)]).sum(0)


class Masked(nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None, *, kind: str = "add") -> Tensor:
        if mask is not None:
            raise ValueError("expected no mask")
        return x * 2 if kind == "double" else x + 1


@dataclass
class Batch:
    """The input and the output of a model."""

    x: Tensor
    bias: Tensor


class OfDataclass(nn.Module):
    """Takes a dataclass and returns another."""

    def forward(self, batch: Batch) -> Batch:
        return Batch(x=batch.x - batch.bias, bias=batch.bias * 2)


class Point(NamedTuple):
    """Two tensors by name and by position."""

    left: Tensor
    right: Tensor


class OfPoints(nn.Module):
    """Takes a list of named tuples."""

    def forward(self, points: Sequence[Point]) -> Tensor:
        return torch.cat([point.left - 2 * point.right for point in points], -1)


class Cache:
    """Keys and values of each layer, with the earlier ones."""

    def __init__(self, *layers: Sequence[Tensor]) -> None:
        self.keys = [key for key, _ in layers]
        self.values = [value for _, value in layers]

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append new keys and values, and return all of them."""
        self.keys[layer] = torch.cat([self.keys[layer], key], 2)
        self.values[layer] = torch.cat([self.values[layer], value], 2)
        return self.keys[layer], self.values[layer]


class Decoder(nn.Module):
    """Two layers of attention over a cache, as in language models."""

    heads, size = 2, 4

    def __init__(self) -> None:
        super().__init__()
        width = self.heads * self.size
        self.embed = nn.Embedding(32, width)
        self.layers = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.head = nn.Linear(width, 32)

    def forward(
        self, tokens: Tensor, past: Cache
    ) -> tuple[Tensor, tuple[tuple[Tensor, Tensor], ...]]:
        x = self.embed(tokens)
        for index, layer in enumerate(self.layers):
            shape = (*x.shape[:2], self.heads, self.size)
            query, key, value = (
                part.reshape(shape).transpose(1, 2) for part in layer(x).chunk(3, -1)
            )
            keys, values = past.update(index, key, value)
            scores = torch.softmax(query @ keys.transpose(2, 3) * 0.5, -1)
            x = x + (scores @ values).transpose(1, 2).flatten(2)
        return self.head(x), tuple(zip(past.keys, past.values, strict=True))


class TimesInt(nn.Module):
    def forward(self, x: Tensor, n: int) -> Tensor:
        if isinstance(n, Tensor) and not torch.jit.is_tracing():
            raise TypeError("expected an int")
        return x * n


class TimesFloat(nn.Module):
    def forward(self, x: Tensor, factor: float) -> Tensor:
        if isinstance(factor, Tensor) and not torch.jit.is_tracing():
            raise TypeError("expected a float")
        return x * factor


class Turns(nn.Module):
    def forward(self, x: Tensor, n: int) -> Tensor:
        for _ in range(n):
            x = x * 2
        return x


class Decided(nn.Module):
    def forward(self, x: Tensor, double: bool) -> Tensor:
        if double:
            return x * 2
        return x + 1


class MaybeBias(nn.Module):
    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        if bias is not None:
            return x + bias
        return x * 2


def sized(sizes: Mapping[str, int]) -> tuple[tuple[object, ...], dict[str, object]]:
    batch = sizes["batch"]
    x = torch.randn(batch, 4)
    return (x, (torch.randn(batch, 4), {"bias": torch.rand(batch, 4)})), {}


def fixed() -> tuple[tuple[object, ...], dict[str, object]]:
    return sized({"batch": 3})


def batch_of() -> tuple[tuple[object, ...], dict[str, object]]:
    return (Batch(x=torch.randn(3, 4), bias=torch.randn(3, 4)),), {}
