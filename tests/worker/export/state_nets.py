"""Models whose export depends on the state of PyTorch, on the capture or on the optimizer."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    """A transformer layer, which has a fused path in PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x)


class BiasedAttention(nn.Module):
    """Attention with a trained bias: with gradients, it decomposes to other strides."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)
        self.bias = nn.Embedding(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        heads = self.project(x).view(batch, length, 2, 4).transpose(1, 2)
        position = torch.arange(length)
        distance = (position[None] - position[:, None]).clamp(0, 3)
        bias = self.bias(distance).permute(2, 0, 1)[None]
        y = nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=bias)
        return y.transpose(1, 2).contiguous().view(batch, length, 8)


class Selective(nn.Module):
    """Can be captured only as `init` allows."""

    def __init__(self, *, gradients: bool | None = None, strict: bool | None = None) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.gradients = gradients
        self.strict = strict

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            has_gradients, is_strict = torch.is_grad_enabled(), torch.compiler.is_dynamo_compiling()
            if self.gradients not in (None, has_gradients):
                raise ValueError("gradients have the wrong state")
            if self.strict not in (None, is_strict):
                raise ValueError("the kind of capture is wrong")
        return self.linear(x)


class GradientBranch(nn.Module):
    """Returns other values if gradients are on."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if torch.is_grad_enabled() else x - 1


class Halves(nn.Module):
    """Splits a dynamic axis in two: dynamo's graph optimizer fails at the split."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        first, second = torch.chunk(self.linear(torch.cat([x, 2 * x])), 2, dim=0)
        return first * second


class StoredSize(nn.Module):
    """Stores a size in an attribute: a trace stores a traced tensor, which no capture accepts."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.width = 4

    def forward(self, x: Tensor) -> Tensor:
        if self.width <= 3:
            return self.linear(x) * 2
        if torch.jit.is_tracing():
            self.width = torch.tensor(x.shape[1]) + x.sum().int() * 0
        return self.linear(x)


class Turns(nn.Module):
    def forward(self, x: Tensor, n: int) -> Tensor:
        for _ in range(n):
            x = x * 2
        return x


class Centered(nn.Module):
    """Uses `.data`; strict capture stores the mean as a constant without values."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.data.mean(0)
