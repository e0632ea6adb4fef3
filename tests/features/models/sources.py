"""Models in other forms than a module, and one with weights from a file."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram


class Affine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Normalised(nn.Module):
    """Has equal bias and running mean, and two equal weights."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x))


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if bool(x.mean() > 0):
            return x + 1
        return x - 1


class Unproven(nn.Module):
    """Tests its values twice, always with the same result."""

    def forward(self, x: Tensor) -> Tensor:
        if x.abs().sum() < 0:
            x = x + 1
        if x.isnan().any():
            x = x * 2
        return x * 3


class Branching(nn.Module):
    """Takes one of two branches by its values."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x - 1


class PartlyScripted(nn.Module):
    """A submodule that TorchScript compiled, in a traced model."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.branch = torch.jit.script(Branch())

    def forward(self, x: Tensor) -> Tensor:
        return self.branch(self.linear(x))


@torch.jit.script
def doubled_until_large(x: Tensor) -> Tensor:
    """Double until the values are large."""
    turns = 0
    while bool(x.abs().sum() < 100) and turns < 20:
        x = x * 2
        turns += 1
    return x


def captured() -> ExportedProgram:
    return torch.export.export(
        Affine().eval(), (torch.zeros(5, 4),), dynamic_shapes=({0: Dim.DYNAMIC},)
    )


def fixed() -> ExportedProgram:
    return torch.export.export(Affine().eval(), (torch.zeros(3, 4),))


def scripted() -> torch.jit.ScriptModule:
    compiled: torch.jit.ScriptModule = torch.jit.script(PartlyScripted().eval())
    return compiled
