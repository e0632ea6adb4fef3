"""Models whose traces keep a size of the example, and those that keep none."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class ViewTwo(nn.Module):
    """A batch of 2 written into a view."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * 2).view(2, -1)


class ViewInt(nn.Module):
    """A batch read as a Python number."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * 2).reshape(int(x.shape[0]), 2, 2).flatten(1)


class ViewSize(nn.Module):
    """The batch as the shape says it."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * 2).reshape(x.shape[0], 2, 2).flatten(1)


class ViewRest(nn.Module):
    """-1 stands for the width: a batch of any size has it, a width of any size has not."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * 2).reshape(-1, 4).reshape(x.shape[0], -1)


class GrownShape(nn.Module):
    """In-place arithmetic on a size: torch.onnx's own warning example."""

    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[0]
        size += 2
        return torch.zeros(size, 4) + x[0]


class InPlaceShape(nn.Module):
    """In-place arithmetic on a size as a tensor."""

    def forward(self, x: Tensor) -> Tensor:
        size = torch.tensor(x.shape[0])
        size.mul_(2)
        return x * size


class RowLoop(nn.Module):
    """A Python loop over a dynamic size."""

    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros_like(x[0])
        for index in range(x.shape[0]):
            total = total * 0.5 + x[index]
        return x + total


class Cumulative(nn.Module):
    """A sum over rows inside the graph."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.cumsum(x, dim=0)


class HalfSplit(nn.Module):
    """Cuts the rows at a Python number."""

    def forward(self, x: Tensor) -> Tensor:
        half = len(x) // 2
        return torch.cat([x[half:], x[:half]])


class FixedMask(nn.Module):
    """A mask of the example's length."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.arange(3.0).reshape(3, 1)


class Positions(nn.Module):
    """Positions of as many columns as there are."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.arange(x.shape[1], dtype=x.dtype)


class FixedZeros(nn.Module):
    """A state whose batch is that of the example, broadcast at 1."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.state


class BatchOfOne(nn.Module):
    """Does something else for a batch of 1."""

    def forward(self, x: Tensor) -> Tensor:
        return x - 5 if x.shape[0] == 1 else x * 2


class Squeezed(nn.Module):
    """`squeeze()` without a dimension also takes a batch of 1 away."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.unsqueeze(1) * 2).squeeze()


class SqueezedAt(nn.Module):
    """`squeeze(1)` takes what it says."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.unsqueeze(1) * 2).squeeze(1)


class Table(nn.Module):
    """A position table of `length` rows."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 4)
        self.positions = nn.Embedding(length, 4)

    def forward(self, ids: Tensor) -> Tensor:
        order = torch.arange(ids.shape[1], device=ids.device)
        return self.words(ids) + self.positions(order)


class Clamped(nn.Module):
    """A table of 6 rows, the last of which serves all that come after."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Embedding(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        order = torch.arange(x.shape[0], device=x.device).clamp(max=5)
        return x + self.positions(order)


class Pooled(nn.Module):
    """To one size whatever comes in: TorchScript can only do factors."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.avg_pool1d(x.unsqueeze(1), 2).squeeze(1)


class Paired(nn.Module):
    """Adds two inputs: their rows must be as many."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right * 2


class Crossed(nn.Module):
    """`[rows, columns]` in, `[columns, rows]` out."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1) * 2


class Upsampled(nn.Module):
    """Twice as long."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.interpolate(x.unsqueeze(1), scale_factor=2.0).squeeze(1)


class Recurrent(nn.Module):
    """A GRU over a dynamic length."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.GRU(4, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.cells(x)[0]


class Attention(nn.Module):
    """Needs opset 14 under TorchScript."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(x, x, x)


class Shuffled(nn.Module):
    """A pixel shuffle: TorchScript loses the sizes of its output."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.pixel_shuffle(x, 2)


class Found(nn.Module):
    """An output whose size depends on values."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nonzero(x > 0)
