"""Small models with one special behavior each."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Affine(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class KeywordInputs(nn.Module):
    def forward(self, left: Tensor, right: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
        return {"difference": (left - right) * scale, "left": left * 2}


class TextOutput(nn.Module):
    def forward(self, x: Tensor) -> dict[str, object]:
        return {"y": x + 1, "name": "words"}


class RandomOutput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


class BatchNorm(nn.Module):
    """A BatchNorm: in training mode its statistics change and its outputs do not."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class InPlaceAddition(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.add_(1.0)


class LimitedBatch(nn.Module):
    """Raises an error if the batch is larger than 5."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 5:
            raise ValueError("at most 5 rows")
        return x * 2


class LimitedRow(nn.Module):
    """Adds the row of a table at an index, and an optional input."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.arange(4.0 * rows).reshape(rows, 4))

    def forward(self, x: Tensor, row: Tensor, m: Tensor | None = None) -> Tensor:
        added = x[:, :3] + self.table[row, :3]
        return added if m is None else added + m[:, :3]


class RowLookup(nn.Module):
    def forward(self, x: Tensor, i: Tensor) -> Tensor:
        return x[i]


class Float32Only(nn.Module):
    """Computes in float32 for inputs of every dtype."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x.to(torch.float32) * 3)


class Attention(nn.Module):
    """Needs opset 14."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x)


class PixelShuffle(nn.Module):
    """A pixel shuffle: TorchScript loses the sizes of its output."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pixel_shuffle(x, 2)


class NewOperators(nn.Module):
    """Operators that newer opsets add: Gelu at 20, RMSNormalization at 23."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(8)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(self.linear(self.norm(x))) + x


class RedundantSteps(nn.Module):
    """Operators that an optimizer removes: inverse pairs and steps that can be merged."""

    def forward(self, x: Tensor) -> Tensor:
        y = (x * 1).unsqueeze(1).unsqueeze(1).transpose(3, 4).transpose(3, 4)
        return y.reshape(-1, 48).reshape(-1, 6, 8).to(torch.float64).to(torch.float32) + 0


class NonZero(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nonzero(x > 0)


class ScaledMean(nn.Module):
    def forward(self, x: Tensor, k: Tensor) -> Tensor:
        return (x * k).mean()


def build_affine(width: int = 4) -> nn.Module:
    return Affine(width)


def build_text() -> str:
    return "nothing"


def raise_error() -> nn.Module:
    raise RuntimeError("no weights here")


@torch.jit.script
def scripted_loop(x: Tensor, count: int) -> Tensor:
    """Return `x + count`; TorchScript compiles the function."""
    for _ in range(count):
        x = x + 1
    return x


SHARED_AFFINE = Affine()
text = "not a model"


def fill_with_sevens(
    shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> Tensor:
    """Return a tensor of sevens; a fill in Python."""
    return torch.full(shape, 7.0, dtype=dtype)


class BufferDtypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("index", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("phase", torch.zeros(2, dtype=torch.complex64))
        self.register_buffer("scale", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class ExportBranch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x if torch.onnx.is_in_onnx_export() else x * 2


class ComplexProduct(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.randn(4, dtype=torch.complex64))

    def forward(self, z: Tensor) -> Tensor:
        return (z * self.turn).conj()


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.second = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


class ConvBatchNorm(nn.Module):
    """A convolution and a BatchNorm that the exporters fold into it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.norm.running_var.fill_(4.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class TiedLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


class Patches(nn.Module):
    """Splits the width into patches of 8; the width must be a multiple of 8."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if x.shape[1] % 8:
            raise ValueError("the width is no multiple of 8")
        patches = x.reshape(x.shape[0], x.shape[1] // 8, 8)
        return x * 2, patches.sum(-1)


class ValueBranches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            if x.sum() > 0:
                x = x * 2
        return x


class FailsLater(nn.Module):
    """Takes 7 rows before it took 16, and not later."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 7 and self.largest > 7:
            raise ValueError("too many rows")
        self.largest = max(self.largest, x.shape[0])
        return x * 2


class RoundsLater(nn.Module):
    """Rounds 7 rows in another way after it took 16."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def forward(self, x: Tensor) -> Tensor:
        is_later = x.shape[0] == 7 and self.largest > 7
        self.largest = max(self.largest, x.shape[0])
        return x * 3 / 7 if is_later else x * (3 / 7)


class KeepsNumber(nn.Module):
    """Adds the number of its large values, which a trace keeps."""

    def forward(self, x: Tensor) -> Tensor:
        return x + int(x.gt(1e6).sum())


class KeepsMean(nn.Module):
    """Adds a number that each input changes."""

    def forward(self, x: Tensor) -> Tensor:
        return x + float(x.mean()) * 0


class ManyNumbers(nn.Module):
    """A slow model with many numbers and a condition on the smallest ones."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones((1 << 20) + 1))

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.weight[0] + min(0, 50, 100, 1000, 2000)
        return y + 1 if 20 < x.shape[0] < 40 else y


class HighBranch(nn.Module):
    """Has another branch for numbers that no sample has, or for half of them."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        total = float(x.sum())
        if total > self.limit:
            return x * 0 + 1
        return x + 0


class KeepsSize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * int(x.shape[1])


class Float32Positions(nn.Module):
    """Multiplies its weights with numbers that it creates in float32, as for positions."""

    def __init__(self, is_cast: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.is_cast = is_cast

    def forward(self, x: Tensor) -> Tensor:
        positions = torch.arange(4, dtype=torch.float32) / 3
        y = self.linear(x) + self.linear(positions)
        return y.float() if self.is_cast else y
