"""Small models that behave in one particular way each."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Affine(nn.Module):
    """`x @ W + b`: sound in every way."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Keywords(nn.Module):
    """`left` and `right` have one shape and are not interchangeable."""

    def forward(self, left: Tensor, right: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
        return {"difference": (left - right) * scale, "left": left * 2}


class Nested(nn.Module):
    """Takes `(x, (a, b))`."""

    def forward(self, x: Tensor, pair: tuple[Tensor, Tensor]) -> Tensor:
        return x + pair[0] - pair[1]


class Words(nn.Module):
    """Returns a str beside a tensor."""

    def forward(self, x: Tensor) -> dict[str, object]:
        return {"y": x + 1, "name": "words"}


class Restless(nn.Module):
    """Differs from itself."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


class Counter(nn.Module):
    """Changes a buffer in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


class Averaging(nn.Module):
    """BatchNorm: in training mode it keeps running figures that its outputs do not follow."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class InPlace(nn.Module):
    """Changes its input."""

    def forward(self, x: Tensor) -> Tensor:
        return x.add_(1.0)


class Large(nn.Module):
    """Refuses batches above 5."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 5:
            raise ValueError("at most 5 rows")
        return x * 2


class Row(nn.Module):
    """One row by its number."""

    def forward(self, x: Tensor, i: Tensor) -> Tensor:
        return x[i]


class Stubborn(nn.Module):
    """Computes in float32 whatever it is given."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x.to(torch.float32) * 3)


class Baked(nn.Module):
    """Reads a size as a Python number: tracing bakes it in."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(int(x.shape[0]) * 4)


class Weighty(nn.Module):
    """Two million weights: 8 MB."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1000, 2000)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Attention(nn.Module):
    """Needs opset 14."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x)


class Shuffle(nn.Module):
    """A pixel shuffle: TorchScript loses the sizes of its output."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pixel_shuffle(x, 2)


class Block(nn.Module):
    """Operators that newer opsets have for themselves: Gelu at 20, RMSNormalization at 23."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(8)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(self.linear(self.norm(x))) + x


class Roundabout(nn.Module):
    """What an optimiser makes shorter: pairs that undo each other, and steps that are one."""

    def forward(self, x: Tensor) -> Tensor:
        y = (x * 1).unsqueeze(1).unsqueeze(1).transpose(3, 4).transpose(3, 4)
        return y.reshape(-1, 48).reshape(-1, 6, 8).to(torch.float64).to(torch.float32) + 0


class Found(nn.Module):
    """An output whose size depends on values."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nonzero(x > 0)


class Scaled(nn.Module):
    """A number in, a number out."""

    def forward(self, x: Tensor, k: Tensor) -> Tensor:
        return (x * k).mean()


class Decided(nn.Module):
    """Chooses the same of four whatever it is given."""

    def forward(self, x: Tensor) -> Tensor:
        return (torch.tanh(x) + torch.tensor([9.0, 0.0, 0.0, 0.0])).argmax(-1)


def make(width: int = 4) -> nn.Module:
    """A function that returns a module."""
    return Affine(width)


def not_a_model() -> str:
    """Returns no module."""
    return "nothing"


def failing() -> nn.Module:
    """Raises while it is built."""
    raise RuntimeError("no weights here")


@torch.jit.script
def compiled(x: Tensor, count: int) -> Tensor:
    """A function compiled by TorchScript."""
    for _ in range(count):
        x = x + 1
    return x


shared = Affine()
text = "not a model"


def drawn(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """A fill written in Python."""
    return torch.full(shape, 7.0, dtype=dtype)


class Kinds(nn.Module):
    """A buffer of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("index", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("phase", torch.zeros(2, dtype=torch.complex64))
        self.register_buffer("scale", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Exported(nn.Module):
    """Does in an export by an addition what it does otherwise by a multiplication."""

    def forward(self, x: Tensor) -> Tensor:
        return x + x if torch.onnx.is_in_onnx_export() else x * 2


class Turned(nn.Module):
    """Complex numbers times a complex weight."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.randn(4, dtype=torch.complex64))

    def forward(self, z: Tensor) -> Tensor:
        return (z * self.turn).conj()


class Layers(nn.Module):
    """Two layers, four parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.second = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


class Convolved(nn.Module):
    """A convolution and a BatchNorm that exporters fold into it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.norm.running_var.fill_(4.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class Tied(nn.Module):
    """Two layers that share their weight and have each a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


class Patches(nn.Module):
    """Cuts a width that has to be a multiple of 8 into patches of 8."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if x.shape[1] % 8:
            raise ValueError("the width is no multiple of 8")
        patches = x.reshape(x.shape[0], x.shape[1] // 8, 8)
        return x * 2, patches.sum(-1)


class Branching(nn.Module):
    """Decides twice on a value, and calls a part of torch that bakes a size in."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            if x.sum() > 0:
                x = x * 2
        return x
