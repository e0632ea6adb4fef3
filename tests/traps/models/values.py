"""Models whose traces keep a value of the example: a count, a branch, a number read out."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LoopCount(nn.Module):
    """Turns `n` times, and adds `n`."""

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        for _ in range(int(n)):
            x = x * 0.5 + n
        return x


class OnlyCounted(nn.Module):
    """Turns `n` times; nothing else is done with `n`."""

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        for _ in range(int(n)):
            x = x * 0.5 + 1
        return x


@torch.jit.script
def turns(x: Tensor, n: Tensor) -> Tensor:
    """The loop by TorchScript, which keeps it."""
    for _ in range(int(n)):
        x = x * 0.5 + n
    return x


class ScriptedLoop(nn.Module):
    """The loop by a scripted function inside a traced module."""

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        return turns(x, n)


class WhileLoop(nn.Module):
    """Halves until nothing is above 1; TorchScript's tracer keeps the number of turns."""

    def forward(self, x: Tensor) -> Tensor:
        while bool(x.abs().max() > 1):
            x = x / 2
        return x


class BranchOnSum(nn.Module):
    """Which way is taken depends on values."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x - 1


class BranchOnElement(nn.Module):
    """Which way is taken depends on one element."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x[0, 0] > 0 else x - 1


class Selected(nn.Module):
    """The same choice inside the graph."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x.sum() > 0, x * 2, x - 1)


class FlagOnly(nn.Module):
    """A truth value as an input chooses the branch."""

    def forward(self, x: Tensor, flag: Tensor) -> Tensor:
        return x * 2 if bool(flag) else x - 1


class ItemRead(nn.Module):
    """Divides by a number that Python read out."""

    def forward(self, x: Tensor) -> Tensor:
        return x / x.abs().max().item()


class ItemKept(nn.Module):
    """Divides by the same number as a tensor."""

    def forward(self, x: Tensor) -> Tensor:
        return x / x.abs().max()


class NumpyMean(nn.Module):
    """Subtracts a mean that numpy computed."""

    def forward(self, x: Tensor) -> Tensor:
        return x - torch.from_numpy(x.detach().numpy().mean(keepdims=True))


class ListConstant(nn.Module):
    """Passes values through a Python list."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tensor(x[0].tolist())


class ConvertedTensor(nn.Module):
    """`torch.tensor(tensor)` copies values, and the trace loses where they came from."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.tensor(float(x.mean()))


class DataRead(nn.Module):
    """Goes around the trace by `Tensor.data`."""

    def forward(self, x: Tensor) -> Tensor:
        scale = x.data.abs().amax()
        return x * scale


class DataWritten(nn.Module):
    """Writes by `Tensor.data`, which no trace sees."""

    def forward(self, x: Tensor) -> Tensor:
        y = x * 1
        y.data.mul_(3.0)
        return y + x


class SizeByValue(nn.Module):
    """How many columns are kept is a value, read out."""

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        return x * n + x[:, : int(n)].sum()


class RareBranch(nn.Module):
    """A branch that no normal noise takes: only a case of the manifest can."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 0 if bool(x.max() > 100) else x + 1


class Gate(nn.Module):
    """Passes everything or nothing by a sum."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return x * 2 if bool(mask.any()) else x + mask.to(x.dtype)


class LastRow(nn.Module):
    """A row by a number that Python reads, and the number itself."""

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        return x[:, int(index)] + index


class Remainders(nn.Module):
    """Division of negative integers, which rounds down in PyTorch."""

    def forward(self, x: Tensor) -> Tensor:
        return x // 4 + 100 * (x % 3)
