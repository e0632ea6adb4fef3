"""Models with all kinds of inputs and outputs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Dictionary(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"double": x * 2, "back": x - 1}


class Text(nn.Module):
    def forward(self, x: Tensor) -> dict[str, object]:
        return {"y": x + 1, "kind": "words"}


class Nothing(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return x * 2, None


class Number(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        return x * 2, 7


class Size(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        return x * 2, x.shape[0]


class Named(dict[str, Tensor]):
    """A mapping that PyTorch does not know."""


class Results(nn.Module):
    def forward(self, x: Tensor) -> Named:
        return Named(double=x * 2, back=x * 2 - x)


class Nested(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, dict[str, list[Tensor]]]:
        return x * 2, {"rest": [x - 1, x + 3]}


class Pair(NamedTuple):
    """Two tensors by name."""

    first: Tensor
    second: Tensor


class NamedPair(nn.Module):
    def forward(self, x: Tensor) -> Pair:
        return Pair(x * 2, x - 1)


class SameOutputTwice(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y, y


class PassThrough(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x * 2


class Identity(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


class Ignores(nn.Module):
    def forward(self, x: Tensor, extra: Tensor) -> Tensor:
        return x * 2


class Difference(nn.Module):
    """`left` and `right` cannot be exchanged, and neither can the outputs."""

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        return left - 2 * right, left * 3


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.tensor([2.0], dtype=torch.float64)


class DoubledInside(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * torch.tensor([0.1], dtype=torch.float64)).to(x.dtype)


class Best(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = x.topk(2, dim=1)
        return values, indices


class Labels(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.argmax(dim=1)


class LayerAndInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, self.linear(x)


class SameLabels(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x + torch.tensor([0.0, 1e3, 0.0, 0.0])).argmax(dim=1)


class LabelsAndTemperature(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.argmax(dim=1), torch.full((1,), 0.7)


class Constant(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 0 + 1.5


class Positions(nn.Module):
    """Returns positions and a causal mask, which depend on the size of its input only."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(x.shape[1], device=x.device)
        angles = places[:, None] / torch.tensor([1.0, 10.0])
        return torch.sin(angles), places[:, None] >= places


class FixedPositions(nn.Module):
    """Returns positions whose length is a number of Python, and therefore a constant."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.arange(int(x.shape[1]) * 1.0)[None] + torch.zeros_like(x[:, :1])


class Unconnected(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("said", torch.ones(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.said * 2


class Mask(nn.Module):
    def forward(self, x: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        return torch.where(keep, x, torch.zeros_like(x)), ~keep


class Bytes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.float32) / 255 - 0.5
