"""Models with all kinds of inputs and outputs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Dictionary(nn.Module):
    """A dict with keys that are not in alphabetical order."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"double": x * 2, "back": x - 1}


class Text(nn.Module):
    """A str next to a tensor."""

    def forward(self, x: Tensor) -> dict[str, object]:
        return {"y": x + 1, "kind": "words"}


class Nothing(nn.Module):
    """None next to a tensor."""

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return x * 2, None


class Number(nn.Module):
    """A Python number next to a tensor."""

    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        return x * 2, 7


class Nested(nn.Module):
    """Tuples, lists and a dict in each other."""

    def forward(self, x: Tensor) -> tuple[Tensor, dict[str, list[Tensor]]]:
        return x * 2, {"rest": [x - 1, x + 3]}


class Pair(NamedTuple):
    """Two tensors by name."""

    first: Tensor
    second: Tensor


class NamedPair(nn.Module):
    """A named tuple."""

    def forward(self, x: Tensor) -> Pair:
        return Pair(x * 2, x - 1)


class SameOutputTwice(nn.Module):
    """One tensor as both outputs."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y, y


class PassThrough(nn.Module):
    """The input itself is an output."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x * 2


class Identity(nn.Module):
    """Returns only its input."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Ignores(nn.Module):
    """Takes two inputs and uses one."""

    def forward(self, x: Tensor, extra: Tensor) -> Tensor:
        return x * 2


class Difference(nn.Module):
    """`left` and `right` cannot be exchanged, and neither can the outputs."""

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        return left - 2 * right, left * 3


class Doubled(nn.Module):
    """A float64 constant makes the output float64."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.tensor([2.0], dtype=torch.float64)


class DoubledInside(nn.Module):
    """A float64 constant inside, float32 outside."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * torch.tensor([0.1], dtype=torch.float64)).to(x.dtype)


class Best(nn.Module):
    """Returns indices and the values at them."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = x.topk(2, dim=1)
        return values, indices


class Labels(nn.Module):
    """Returns only integers."""

    def forward(self, x: Tensor) -> Tensor:
        return x.argmax(dim=1)


class LayerAndInput(nn.Module):
    """Returns its unchanged input and the result of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, self.linear(x)


class SameLabels(nn.Module):
    """Returns the same integer for all inputs, because of a bias."""

    def forward(self, x: Tensor) -> Tensor:
        return (x + torch.tensor([0.0, 1e3, 0.0, 0.0])).argmax(dim=1)


class LabelsAndTemperature(nn.Module):
    """Returns integers that change and a float that does not."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.argmax(dim=1), torch.full((1,), 0.7)


class Constant(nn.Module):
    """Uses its input and returns the same value for every input."""

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
    """Does not use its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("said", torch.ones(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.said * 2


class Mask(nn.Module):
    """Returns a bool mask that depends on one input of two."""

    def forward(self, x: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        return torch.where(keep, x, torch.zeros_like(x)), ~keep


class Bytes(nn.Module):
    """Pixels as bytes."""

    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.float32) / 255 - 0.5
