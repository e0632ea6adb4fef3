"""Two transformer encoders: a ViT with attention written out, a BERT with PyTorch's operator."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.initialization import LINEAR, rescale


class ViTTiny(nn.Module):
    """ViT-Ti/16: Dosovitskiy et al., https://arxiv.org/abs/2010.11929; Ti as in DeiT.

    Its attention uses matrix products, which every opset has.

    Shapes: `[batch, 3, 224, 224]` -> `[batch, 1000]`; 5,717,416 parameters.
    """

    def __init__(
        self, classes: int = 1000, width: int = 192, depth: int = 12, image: int = 224
    ) -> None:
        super().__init__()
        patches = (image // 16) ** 2
        self.embed = nn.Conv2d(3, width, 16, stride=16)
        self.class_token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 1 + patches, width) / 2)
        self.blocks = nn.Sequential(*(PreNormBlock(width, heads=3) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)
        rescale(self, LINEAR)

    def forward(self, image: Tensor) -> Tensor:
        """Compute the logits from the class token."""
        patches = self.embed(image).flatten(2).transpose(1, 2)
        token = self.class_token.expand(patches.shape[0], -1, -1)
        x = self.blocks(torch.cat([token, patches], dim=1) + self.positions)
        logits: Tensor = self.head(self.norm(x[:, 0]))
        return logits


class PreNormBlock(nn.Module):
    """Attention and a perceptron with normalization before each; shape `[batch, n, width]`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width, eps=1e-6), Attention(width, heads))
        self.perceptron = nn.Sequential(nn.LayerNorm(width, eps=1e-6), *perceptron(width))

    def forward(self, x: Tensor) -> Tensor:
        """Add the output of each half."""
        x = x + self.attention(x)
        y: Tensor = x + self.perceptron(x)
        return y


class Attention(nn.Module):
    """Self-attention as products and a softmax; shape `[batch, n, width]`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the values by the similarity of queries and keys."""
        query, key, value = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
        attended: Tensor = self.project(join_heads(scores.softmax(dim=-1) @ value))
        return attended


class BertMini(nn.Module):
    """BERT-Mini: Devlin et al., https://arxiv.org/abs/1810.04805.

    Four layers of 256 as in Turc et al., https://arxiv.org/abs/1908.08962. Its attention is
    PyTorch's own operator, `scaled_dot_product_attention`.

    Shapes: ids and mask `[batch, sequence]`, at most 512 tokens ->
    states `[batch, sequence, 256]` and summary `[batch, 256]`; 11,170,560 parameters.
    """

    def __init__(self, vocabulary: int = 30522, width: int = 256, depth: int = 4) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(512, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(width, heads=4) for _ in range(depth))
        self.pooler = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        rescale(self, LINEAR)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Encode the tokens with a mask of 1, and summarize them by the first."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        segments = torch.zeros_like(input_ids)
        x = self.words(input_ids) + self.positions(positions) + self.segments(segments)
        x = self.norm(x)
        masked = (1 - attention_mask[:, None, None, :]).to(x.dtype)
        bias = masked * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, bias)
        return x, self.pooler(x[:, 0])


class BertLayer(nn.Module):
    """Attention and a perceptron with normalization after each; shape `[batch, n, width]`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.project = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.perceptron = perceptron(width)
        self.perceptron_norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """Attend with `bias` `[batch, 1, 1, n]` on the scores, then transform each token."""
        query, key, value = (
            split_heads(layer(x), self.heads) for layer in (self.query, self.key, self.value)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        x = self.attention_norm(x + self.project(join_heads(attended)))
        y: Tensor = self.perceptron_norm(x + self.perceptron(x))
        return y


def perceptron(width: int) -> nn.Sequential:
    """Four times the width and back, by a GELU."""
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


def split_heads(x: Tensor, heads: int) -> Tensor:
    """`[batch, n, width]` -> `[batch, heads, n, width / heads]`."""
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """`[batch, heads, n, width / heads]` -> `[batch, n, width]`."""
    return x.transpose(1, 2).flatten(2)
