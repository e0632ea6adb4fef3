"""Sound models for traps that change their files."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Picture(nn.Module):
    """Convolution, BatchNorm, Clip, pooling, Transpose, LeakyRelu and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.hardtanh(self.first(x), -0.6, 0.6)
        x = functional.leaky_relu(self.second(x), 0.1)
        x = functional.max_pool2d(x, 2)
        x = self.norm(x.permute(0, 2, 3, 1))
        x = torch.softmax(x, dim=2)
        return self.head(x.mean(dim=(1, 2)) + x.amax(dim=(1, 2)))


class Outside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(20, 20, bias=False)
        self.second = nn.Linear(20, 20, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(left) - right, torch.sigmoid(right) * 2


class Chosen(nn.Module):
    """Integers and booleans together with a float."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x.sort(dim=1)[0], x.argmax(dim=1), x > 0


class Vocabulary(nn.Module):
    """An embedding; an input reads few of its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 4)

    def forward(self, ids: Tensor) -> Tensor:
        return self.words(ids)


class Reshaped(nn.Module):
    """Reshapes by sizes that are read from the input."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.reshape(x.shape[0], 2, 2).transpose(1, 2) * 2).reshape(x.shape[0], 4)


@torch.jit.script
def repeated(x: Tensor, n: Tensor) -> Tensor:
    for _ in range(int(n)):
        x = x * 0.5 + n
    return x


class Looped(nn.Module):
    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        return repeated(x, n)
