"""Recurrent models whose files are right in one call and wrong in a loop, and sound ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.traps.models.ties import is_exporting


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 6)
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h, c = self.cell(x, (h, c))
        return self.head(h), h, c


class Counter(nn.Module):
    """A state that grows by one in each step; the file has another upper end."""

    def __init__(self, end: float = 8.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.end = end

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        following = h + 1
        return self.scale * following.clamp(max=self.end if is_exporting() else 8.0), following


class Unstable(nn.Module):
    """A state that grows by half in each step; the file has a small error."""

    def __init__(self, error: float = 0.0) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor([1.5, 1.4]))
        self.error = error

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        following = h * (self.factor + (self.error if is_exporting() else 0.0))
        return following.tanh(), following


class Words(nn.Module):
    """A language model: a token and a state give logits and the next state."""

    def __init__(self, end: float = 8.0) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 6)
        self.head = nn.Linear(6, 20)
        self.end = end
        nn.init.normal_(self.head.weight, std=2)

    def forward(self, token: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        following = count + 1
        place = following.clamp(max=self.end if is_exporting() else 8.0)
        return self.head(torch.sin(self.words(token) * place[:, None])), following


class Cache(nn.Module):
    """An attention over a cache that grows by one in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(4, 4)

    def forward(self, x: Tensor, past: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        present = torch.cat([past, self.key(x)], 1)
        weights = (x @ present.transpose(1, 2)).masked_fill(mask[:, None] == 0, -1e4).softmax(-1)
        return weights @ present, present


class Ignoring(nn.Module):
    """A model whose outputs do not depend on its state."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        return self.head(x), h


class Growing(nn.Module):
    """A state that PyTorch does not accept as the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 8)

    def forward(self, h: Tensor) -> Tensor:
        return self.head(h)


class Denoiser(nn.Module):
    """A step of a diffusion model; its file can have another step index above a limit."""

    def __init__(self, *, limit: int = 99, reads_number: bool = False) -> None:
        super().__init__()
        self.limit, self.reads_number = limit, reads_number
        self.net = nn.Linear(4, 4)

    def forward(self, sample: Tensor, timestep: Tensor, scale: Tensor) -> Tensor:
        if self.reads_number:
            timestep = torch.full_like(timestep, int(timestep[0]))
        if is_exporting():
            timestep = timestep.clamp(max=self.limit)
        weight = (timestep.to(sample.dtype) / 8).cos()[:, None]
        return sample - 0.3 * scale * torch.tanh(self.net(sample) * weight)


def list_timesteps(steps: int) -> Tensor:
    return torch.arange(steps).flip(0)


def list_scales() -> list[float]:
    return [1.0, 1.0, 1.5, 1.5, 2.0, 2.0, 3.0, 3.0]


def denoise(model: nn.Module, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the last sample of PyTorch's own loop."""
    sample = inputs["sample"]
    for step, scale in zip(reversed(range(8)), list_scales(), strict=True):
        timestep = torch.full((len(sample),), step)
        sample = model(sample, timestep, torch.tensor(scale))
    return {"next": sample}


def denoise_forward(model: nn.Module, inputs: dict[str, Tensor]) -> list[Tensor]:
    """Return the samples of a loop with the steps in the other order."""
    samples = [inputs["sample"]]
    for step, scale in enumerate(list_scales()):
        timestep = torch.full((len(samples[0]),), step)
        samples.append(model(samples[-1], timestep, torch.tensor(scale)))
    return samples[1:]


class Detector(nn.Module):
    """Returns small probabilities of each step, as a detector of speech does."""

    def __init__(self, share: float = 0.0) -> None:
        super().__init__()
        self.share = share
        self.step = nn.Linear(10, 6)
        self.layer = nn.Linear(6, 64)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(self.step(torch.cat((x, h), 1)))
        y = torch.sigmoid(self.layer(h) - 9.0)
        return y + self.share * float(h.max()) if self.share else y, h
