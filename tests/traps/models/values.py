"""Models with traces that contain a value of the example: a count, a branch, a number."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LoopCount(nn.Module):
    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        for _ in range(int(n)):
            x = x * 0.5 + n
        return x


class OnlyCounted(nn.Module):
    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        for _ in range(int(n)):
            x = x * 0.5 + 1
        return x


@torch.jit.script
def turns(x: Tensor, n: Tensor) -> Tensor:
    """A TorchScript loop, which the export keeps."""
    for _ in range(int(n)):
        x = x * 0.5 + n
    return x


class ScriptedLoop(nn.Module):
    """The loop by a scripted function inside a traced module."""

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        return turns(x, n)


class WhileLoop(nn.Module):
    """Halves until no value exceeds 1; TorchScript's tracer fixes the count."""

    def forward(self, x: Tensor) -> Tensor:
        while bool(x.abs().max() > 1):
            x = x / 2
        return x


class BranchOnSum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x - 1


class BranchOnElement(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x[0, 0] > 0 else x - 1


class Selected(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x.sum() > 0, x * 2, x - 1)


class FlagOnly(nn.Module):
    def forward(self, x: Tensor, flag: Tensor) -> Tensor:
        return x * 2 if bool(flag) else x - 1


class ItemRead(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / x.abs().max().item()


class ItemKept(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / x.abs().max()


class NumpyMean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - torch.from_numpy(x.detach().numpy().mean(keepdims=True))


class ListConstant(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tensor(x[0].tolist())


class ConvertedTensor(nn.Module):
    """`torch.tensor(tensor)` copies values without a trace of their origin."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.tensor(float(x.mean()))


class DataRead(nn.Module):
    """Reads `Tensor.data`, which is not traced."""

    def forward(self, x: Tensor) -> Tensor:
        scale = x.data.abs().amax()
        return x * scale


class DataWritten(nn.Module):
    """Writes to `Tensor.data`, which is not traced."""

    def forward(self, x: Tensor) -> Tensor:
        y = x * 1
        y.data.mul_(3.0)
        return y + x


class SizeByValue(nn.Module):
    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        return x * n + x[:, : int(n)].sum()


class RareBranch(nn.Module):
    """Has a branch that no normal noise selects, only a case of the manifest."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 0 if bool(x.max() > 100) else x + 1


class RareChoice(nn.Module):
    """Makes the choice of a rare branch inside the graph."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x.max() > 100, x * 0.5, x + 1)


class Gate(nn.Module):
    """Multiplies all values by one or zero, which the sum determines."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return x * 2 if bool(mask.any()) else x + mask.to(x.dtype)


class LastRow(nn.Module):
    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        return x[:, int(index)] + index


class Remainders(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x // 4 + 100 * (x % 3)


class BranchOnMean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if float(x.mean()) > 4 else x - 1


class Buckets(nn.Module):
    def forward(self, x: Tensor, boundaries: Tensor) -> Tensor:
        return torch.bucketize(x, boundaries)


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(8, 4, mode="sum")

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        bags: Tensor = self.bags(ids, offsets)
        return bags
