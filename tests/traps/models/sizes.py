"""Models that keep a size of the example in their traces, and models that do not."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class ViewTwo(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 2).view(2, -1)


class ViewInt(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 2).reshape(int(x.shape[0]), 2, 2).flatten(1)


class ViewSize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 2).reshape(x.shape[0], 2, 2).flatten(1)


class ViewRest(nn.Module):
    """Uses -1 for the width: the batch may have any size, the width may not."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * 2).reshape(-1, 4).reshape(x.shape[0], -1)


class GrownShape(nn.Module):
    """In-place arithmetic on a size: the example of a warning of torch.onnx."""

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
    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros_like(x[0])
        for index in range(x.shape[0]):
            total = total * 0.5 + x[index]
        return x + total


class Cumulative(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.cumsum(x, dim=0)


class HalfSplit(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        half = len(x) // 2
        return torch.cat([x[half:], x[:half]])


class FixedMask(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.arange(3.0).reshape(3, 1)


class Positions(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.arange(x.shape[1], dtype=x.dtype)


class FixedZeros(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.state


class BatchOfOne(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - 5 if x.shape[0] == 1 else x * 2


class Squeezed(nn.Module):
    """`squeeze()` without a dimension also removes a batch of 1."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.unsqueeze(1) * 2).squeeze()


class SqueezedAt(nn.Module):
    """`squeeze(1)` removes only this dimension."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.unsqueeze(1) * 2).squeeze(1)


class Table(nn.Module):
    def __init__(self, length: int, width: int = 4) -> None:
        super().__init__()
        self.words = nn.Embedding(20, width)
        self.positions = nn.Embedding(length, width)

    def forward(self, ids: Tensor) -> Tensor:
        order = torch.arange(ids.shape[1], device=ids.device)
        return self.words(ids) + self.positions(order)


class Clamped(nn.Module):
    """A table of 6 rows; the last row serves all later positions."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Embedding(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        order = torch.arange(x.shape[0], device=x.device).clamp(max=5)
        return x + self.positions(order)


class Pooled(nn.Module):
    """Pools to one output size for all inputs; TorchScript supports only factors."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.avg_pool1d(x.unsqueeze(1), 2).squeeze(1)


class Paired(nn.Module):
    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right * 2


class Crossed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1) * 2


class Upsampled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return functional.interpolate(x.unsqueeze(1), scale_factor=2.0).squeeze(1)


class Recurrent(nn.Module):
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


class SizeByValues(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nonzero(x > 0)


class ResizedToOther(nn.Module):
    """The length of another input; `exact`: True to compute the positions in integers."""

    def __init__(self, exact: bool = False) -> None:
        super().__init__()
        self.exact = exact

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        count = z.shape[0]
        if self.exact:
            return x[torch.arange(count) * x.shape[0] // count] * z
        return nn.functional.interpolate(x[None, None], size=(count,), mode="nearest")[0, 0] * z


class RangeOfQuotient(nn.Module):
    """Steps of a quotient of two sizes; `exact`: True to compute their number in integers."""

    def __init__(self, exact: bool = False) -> None:
        super().__init__()
        self.exact = exact

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        if self.exact:
            steps = torch.arange((z.shape[0] - 1) // x.shape[0] + 1) * x.sum() * 0
        else:
            steps = torch.arange(0, 1, x.shape[0] / z.shape[0]) * x.sum() * 0
        return steps + z[0]
