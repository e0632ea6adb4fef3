"""Models of failures that users reported, as small as possible."""

from __future__ import annotations

import importlib

import torch
from torch import nn
from torch.nn import functional


class Resizes(nn.Module):
    def forward(self, x):
        return functional.interpolate(x, size=(2, 2), mode="bicubic", antialias=True)


class Groups(nn.Module):
    def forward(self, x):
        return functional.scaled_dot_product_attention(x, x[:, :2], x[:, :2], enable_gqa=True)


class Stops(nn.Module):
    def forward(self, x):
        ids = x.argmax(-1, keepdim=True)
        if (x > 100).all():
            return ids
        return torch.cat([ids, ids], 1)


class Drops(nn.Module):
    def forward(self, x):
        return functional.dropout(x, 0.5) + 1


class Draws(nn.Module):
    def forward(self, x):
        return x + torch.randint(0, 100, (1,))


class Keeps(nn.Module):
    def __init__(self):
        super().__init__()
        self.cos = None

    def forward(self, x):
        if self.cos is None or x.shape[0] > self.cos.shape[0]:
            self.cos = torch.arange(x.shape[0], dtype=torch.float32)[:, None].cos()
        return x * self.cos[: x.shape[0]]


class Repeats(nn.Module):
    def forward(self, x):
        rows = []
        for index in range(x.shape[0]):
            rows.append(x[index] + 1)  # noqa: PERF401
        return torch.stack(rows)


class Derives(nn.Module):
    def forward(self, x):
        x = x.detach().requires_grad_(True)
        with torch.enable_grad():
            return torch.autograd.grad(x.tanh().sum(), x)[0]


class Narrow(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, x):
        return self.line(x * 2)


class Flips(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 4)

    def forward(self, x):
        return self.rnn(x.flip(0))[0].flip(0)


class Flags(nn.Module):
    def forward(self, x):
        return functional.scaled_dot_product_attention(x, x, x, is_causal=x.sum() > 100)


class Halves(nn.Module):
    def forward(self, x):
        return functional.max_pool1d(x[None], 4)[0].repeat_interleave(4, 1) + x


class Reads(nn.Module):
    def forward(self, batch):
        return batch["x"] * batch["mask"]


class Calls(nn.Module):
    def forward(self, x):
        return Plugin.apply(x)


class Plugin(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * torch.sigmoid(x)

    @staticmethod
    def symbolic(g, x):
        return g.op("mycompany::Swish", x)


def build_detector():
    return __import__("oldvision").Detector()  # no frame of `importlib`, as of a statement


def build_language_model():
    return importlib.import_module("lazymodels").Model()  # it imports a part when it is read


class Ignores(nn.Module):
    def forward(self, x, mask, bias):
        return x * 2 + bias


class Pads(nn.Module):
    def forward(self, x):
        if x.shape[0] % 2:
            x = torch.cat([x, x[:1]])
        return x.reshape(-1, 2, 4).sum(1)


class Samples(nn.Module):
    def forward(self, x, grid):
        return functional.grid_sample(x, grid, align_corners=False)


class Largest(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, indices = torch.topk(x, 2)
        return values, indices


class Counts(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        known = x > 0
        return known.cumsum(1)


class Shifts(nn.Module):
    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        new = cache.clone()
        row = new[0]
        row[:, :2] = cache[0][:, 2:]
        row[:, 2:] = x
        return new


class WritesCopy(nn.Module):
    def forward(self, x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch.cat([y, y])[:2].copy_(row)
        return y


class Forgets(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(x, -1)
        weights.masked_fill(mask > 0, 0.0)
        return weights * x


class Selects(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chance = torch.softmax(x[0], -1)
        return x * torch.multinomial(chance, 1).item()


class Noises(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.distributions.Normal(x, x.exp()).rsample()


class Seeded(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return x * torch.multinomial(torch.ones(4), 1).item()


class Remembers(nn.Module):
    """A policy in the form of a training library: its memory is an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.GRU(4, 6)
        self.actor = nn.Linear(6, 3)
        self.hidden_states: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, self.hidden_states = self.memory(x[None], self.hidden_states)
        return self.actor(y[0])


class Normalizes(nn.Module):
    """A policy whose normalizer follows each observation."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Linear(4, 3)
        self.register_buffer("running_mean", torch.zeros(4))
        self.register_buffer("count", torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += len(x)
        self.running_mean += (x.mean(0) - self.running_mean) / self.count
        return self.actor(x - self.running_mean)
