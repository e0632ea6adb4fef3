"""A transformer encoder for sentences of different lengths."""

from __future__ import annotations

from torch import Tensor, nn


class Encoder(nn.Module):
    """Embeddings and two layers of nn.TransformerEncoder."""

    def __init__(self, words: int = 100, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, nhead=2, dim_feedforward=32, batch_first=True)
        # Nested tensors have no form in ONNX.
        self.layers = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)

    def forward(self, tokens: Tensor, padding: Tensor) -> Tensor:
        """Return a vector for each token; `padding` is true for positions without a token."""
        encoded: Tensor = self.layers(self.embedding(tokens), src_key_padding_mask=padding)
        return encoded
