"""The two forms of PyTorch's word_language_model example, at its sizes for WikiText-2.

Both predict the next word of each column of `[sequence, batch]` token ids.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.initialization import LINEAR, rescale

State = tuple[Tensor, Tensor]


class LSTMLanguageModel(nn.Module):
    """Embedding, LSTM, linear decoder: Zaremba et al., https://arxiv.org/abs/1409.2329.

    Shapes: tokens `[sequence, batch]`, state two of `[2, batch, 200]` ->
    log-probabilities `[sequence, batch, 33278]`, state; 13,987,678 parameters.
    """

    def __init__(self, vocabulary: int = 33278, width: int = 200, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers)
        self.decode = nn.Linear(width, vocabulary)
        rescale(self, LINEAR)

    def forward(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Predict after each token, and return the state after the last."""
        hidden, state = self.lstm(self.embed(tokens), state)
        return functional.log_softmax(self.decode(hidden), dim=-1), state


class TransformerLanguageModel(nn.Module):
    """A causal encoder: Vaswani et al., https://arxiv.org/abs/1706.03762.

    It uses `nn.TransformerEncoder`, with `scaled_dot_product_attention`.

    Shapes: tokens `[sequence, batch]`, at most 5000 long ->
    log-probabilities `[sequence, batch, 33278]`; 13,828,478 parameters.
    """

    def __init__(self, vocabulary: int = 33278, width: int = 200, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.positions = nn.Buffer(sinusoids(5000, width))
        layer = nn.TransformerEncoderLayer(width, nhead=2, dim_feedforward=width)
        self.encode = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.decode = nn.Linear(width, vocabulary)
        rescale(self, LINEAR)

    def forward(self, tokens: Tensor) -> Tensor:
        """Predict after each token from those before it."""
        length = tokens.shape[0]
        x = self.embed(tokens) + self.positions[torch.arange(length, device=tokens.device)]
        future = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
        hidden = self.encode(x, mask=future, is_causal=True)
        return functional.log_softmax(self.decode(hidden), dim=-1)


def sinusoids(length: int, width: int) -> Tensor:
    """Encode each position as sines and cosines of decreasing frequency, `[length, 1, width]`."""
    frequency = torch.exp(torch.arange(0, width, 2) * (-math.log(10000) / width))
    angle = torch.arange(length)[:, None] * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).reshape(length, 1, width)
