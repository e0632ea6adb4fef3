"""Small forms of models of sequences, sets, signals and tables."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from weights import vary_weights


class TemporalConvolution(nn.Module):
    """Causal dilated convolutions with gates (WaveNet, TCN)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv1d(4, 16, 1)
        self.layers = nn.ModuleList(nn.Conv1d(16, 32, 2, dilation=2**n) for n in range(3))
        self.head = nn.Conv1d(16, 6, 1)
        vary_weights(self)

    def forward(self, signal: Tensor) -> Tensor:
        """Compute a distribution for each step."""
        x = self.embed(signal)
        for number, layer in enumerate(self.layers):
            filtered, gate = layer(functional.pad(x, (2**number, 0))).chunk(2, dim=1)
            x = x + torch.tanh(filtered) * torch.sigmoid(gate)
        return functional.log_softmax(self.head(x), dim=1)


class Recognizer(nn.Module):
    """Convolutions, then a recurrent network over the columns (CRNN)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d((4, 2)))
        self.rnn = nn.GRU(16, 12, bidirectional=True, batch_first=True)
        self.head = nn.Linear(24, 11)
        vary_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        """Compute the characters of each column."""
        x = self.body(image).flatten(1, 2).transpose(1, 2)
        x, _ = self.rnn(x)
        return functional.log_softmax(self.head(x), -1)


class Tagger(nn.Module):
    """An embedding, a bidirectional LSTM and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16, padding_idx=0)
        self.rnn = nn.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(24, 7)
        vary_weights(self)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the tags of each token."""
        x, _ = self.rnn(self.embed(tokens))
        tags: Tensor = self.head(x)
        return tags


class EncoderDecoder(nn.Module):
    """`nn.Transformer` with sine positions, a causal mask and a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        steps = torch.arange(64).unsqueeze(1) * torch.exp(torch.arange(0, 32, 2) * -0.3)
        self.register_buffer("positions", torch.stack([steps.sin(), steps.cos()], -1).flatten(1))
        self.transformer = nn.Transformer(32, 4, 2, 2, 48, batch_first=True)
        self.head = nn.Linear(32, 50)
        vary_weights(self)

    def forward(self, source: Tensor, padding: Tensor, target: Tensor) -> Tensor:
        """Compute the logits of each next token."""
        size = target.shape[1]
        causal = torch.ones(size, size, dtype=torch.bool).triu(1)
        x = self.transformer(
            self.embed(source) * math.sqrt(32) + self.positions[: source.shape[1]],
            self.embed(target) * math.sqrt(32) + self.positions[:size],
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        logits: Tensor = self.head(x)
        return logits


class PaddedAttention(nn.Module):
    """`nn.MultiheadAttention` with a mask of the padded keys."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        vary_weights(self)

    def forward(self, x: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mixed values and the mean weights."""
        mixed, weights = self.attention(x, x, x, key_padding_mask=padding)
        return mixed, weights


class PointNet(nn.Module):
    """A network of points: the order of the points does not matter."""

    def __init__(self) -> None:
        super().__init__()
        self.points = nn.Sequential(
            *(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU()),
            *(nn.Conv1d(16, 32, 1), nn.BatchNorm1d(32)),
        )
        self.turn = nn.Linear(32, 9)
        self.head = nn.Linear(32, 5)
        vary_weights(self)

    def forward(self, points: Tensor) -> Tensor:
        """Compute the class of the set."""
        x = points.transpose(1, 2)
        turn = self.turn(self.points(x).amax(2)).view(-1, 3, 3) + torch.eye(3)
        x = self.points(torch.bmm(points, turn).transpose(1, 2)).max(2)[0]
        return functional.log_softmax(self.head(x), -1)


class GraphConvolution(nn.Module):
    """Messages along edges, added at their targets."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
        vary_weights(self)

    def send(self, x: Tensor, edges: Tensor) -> Tensor:
        """Add the values of all neighbors to each node."""
        total = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
        count = torch.zeros(x.shape[0]).index_add(0, edges[1], torch.ones(edges.shape[1]))
        return (x + total) / (1 + count).unsqueeze(1)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Compute the classes of the nodes."""
        x = functional.relu(self.first(self.send(nodes, edges)))
        classes: Tensor = self.second(self.send(x, edges))
        return classes


class Recommender(nn.Module):
    """Dense features and sums of embeddings, and all their products (DLRM)."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
        self.tables = nn.ModuleList(nn.EmbeddingBag(20, 8, mode="sum") for _ in range(2))
        self.top = nn.Linear(8 + 3, 1)
        vary_weights(self)

    def forward(self, dense: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Compute the probability of a click."""
        x = self.bottom(dense)
        parts = [x, *(table(ids) for table, ids in zip(self.tables, (first, second), strict=True))]
        stacked = torch.stack(parts, 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        rows, columns = torch.tril_indices(3, 3, -1)
        joined = torch.cat([x, products[:, rows, columns]], 1)
        return torch.sigmoid(self.top(joined)).squeeze(1)


class Spectrogram(nn.Module):
    """The power spectrum of audio in bands, and a classifier of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(32))
        self.register_buffer("bands", torch.rand(17, 8))
        self.head = nn.Linear(8, 5)
        vary_weights(self)

    def forward(self, audio: Tensor) -> Tensor:
        """Compute the classes from the mean over time."""
        spectrum = torch.stft(audio, 32, 16, window=self.window, center=False, return_complex=True)
        power = spectrum.abs().square().transpose(1, 2) @ self.bands
        logits: Tensor = self.head(torch.log1p(power).mean(1))
        return logits


class Autoencoder(nn.Module):
    """A variational autoencoder at its mean, as it is used after training."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 2 * 4))
        self.decode = nn.Sequential(nn.Linear(4, 16), nn.ELU(), nn.Linear(16, 20))
        vary_weights(self)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the reconstruction, the mean and the deviation."""
        mean, log_variance = self.encode(x).split(4, dim=-1)
        return self.decode(mean), mean, torch.exp(0.5 * log_variance)
