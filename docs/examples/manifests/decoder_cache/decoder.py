"""A language model that keeps keys and values of earlier tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

KeyValue = tuple[Tensor, Tensor]


class Decoder(nn.Module):
    """Two layers of attention over earlier and new tokens."""

    heads, size = 2, 8

    def __init__(self, words: int = 64) -> None:
        super().__init__()
        width = self.heads * self.size
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.head = nn.Linear(width, words)

    def forward(
        self, tokens: Tensor, past: tuple[KeyValue, ...]
    ) -> tuple[Tensor, tuple[KeyValue, ...]]:
        """Return the logits of the new tokens, and the keys and values of all tokens."""
        x = self.embedding(tokens)
        present = []
        for layer, (past_key, past_value) in zip(self.layers, past, strict=True):
            shape = (*x.shape[:2], self.heads, self.size)
            query, key, value = (
                part.reshape(shape).transpose(1, 2) for part in layer(x).chunk(3, -1)
            )
            key = torch.cat([past_key, key], 2)
            value = torch.cat([past_value, value], 2)
            # A token attends to all earlier ones and to itself.
            causal = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool)
            causal = causal.tril(past_key.shape[2])
            scores = query @ key.transpose(2, 3) / self.size**0.5
            weights = scores.masked_fill(~causal, float("-inf")).softmax(-1)
            x = x + (weights @ value).transpose(1, 2).flatten(2)
            present.append((key, value))
        return self.head(x), tuple(present)
