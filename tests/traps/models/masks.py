"""Models with masks and lengths as inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Attention over the allowed rows of a sequence: a mask of 1 means allowed."""

    causal = False

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        allowed = mask.bool()[:, None, None, :]
        if self.causal:
            size = x.shape[1]
            allowed = allowed & torch.ones(size, size, dtype=torch.bool).tril()
        heads = x[:, None]
        y = functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=allowed)
        return y[:, 0]


class CausalAttention(Attention):
    """Attention over the allowed rows up to the current one."""

    causal = True


class WindowAttention(nn.Module):
    """Attention over the allowed rows among the last six."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        position = torch.arange(x.shape[1])
        distance = position[:, None] - position[None, :]
        allowed = mask.bool()[:, None, None, :] & (distance >= 0) & (distance < 6)
        heads = x[:, None]
        y = functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=allowed)
        return y[:, 0]


class PaddingAttention(Attention):
    """Attention with a padding mask: True means padding."""

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return super().forward(x, ~padding)


class CausalPaddingAttention(PaddingAttention):
    """Attention with a padding mask, over the rows up to the current one."""

    causal = True


class MaskOfExample(Attention):
    """Uses the first row of the example's mask, which Python reads, for all batches."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        first = sum(int(number) for number in mask[0, :2])
        positions = torch.arange(x.shape[1])
        return super().forward(x, mask * (positions <= first)) + 0.0 * mask.sum()


class FullMaskOnly(Attention):
    """Ignores the mask if Python reads that all elements of the example are allowed."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = super().forward(x, torch.ones_like(mask) if bool(mask.all()) else mask)
        return y + 0.0 * mask.sum()


class PooledRows(nn.Module):
    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        is_inside = torch.arange(x.shape[1])[None, :] < lengths[:, None]
        total = (x * is_inside[:, :, None]).sum(1)
        return total / lengths[:, None].to(x.dtype)


class PooledFirstLength(PooledRows):
    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        first = torch.full_like(lengths, int(lengths[0]))
        return super().forward(x, first) + 0.0 * lengths.sum()


class FirstLength(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        length = int(mask[0].sum())
        kept = torch.arange(x.shape[1]) < length
        return x * kept[None, :, None] + 0.0 * mask.sum()
