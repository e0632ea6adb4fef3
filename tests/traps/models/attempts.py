"""Models that need the inference state, another attempt, or no graph optimizer."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    """A transformer layer, which PyTorch can replace by one fused operator."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class BiasedAttention(nn.Module):
    """With gradients, attention with a trained bias decomposes to other strides."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(4, 4)
        self.bias = nn.Parameter(torch.randn(2, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        heads = self.project(x).unflatten(2, (2, 2)).transpose(1, 2)
        y = nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=self.bias)
        return y.transpose(1, 2).contiguous().view(x.shape[0], 3, 4)


class OnlyWithGradients(nn.Module):
    """Cannot be captured without gradients."""

    def __init__(self, shift: float) -> None:
        super().__init__()
        self.shift = shift

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return x * 2 + self.shift
        if torch.compiler.is_exporting():
            raise ValueError("the export has no gradients")
        return x * 2


class Halves(nn.Module):
    def __init__(self, shift: float) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.shift = shift

    def forward(self, x: Tensor) -> Tensor:
        first, second = torch.chunk(self.linear(torch.cat([x, 2 * x])), 2, dim=0)
        return first * second + (self.shift if torch.compiler.is_exporting() else 0)
