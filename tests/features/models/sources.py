"""Models that come in other forms than a module, and one that takes weights from a file."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram


class Affine(nn.Module):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Normalised(nn.Module):
    """Its bias and its running mean are equal, and two weights all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x))


class Branch(nn.Module):
    """Takes one of two ways."""

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.mean() > 0):
            return x + 1
        return x - 1


class PartlyScripted(nn.Module):
    """A submodule that TorchScript compiled, in a model that is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.branch = torch.jit.script(Branch())

    def forward(self, x: Tensor) -> Tensor:
        return self.branch(self.linear(x))


@torch.jit.script
def doubled_until_large(x: Tensor) -> Tensor:
    """As many turns as the values ask for."""
    turns = 0
    while bool(x.abs().sum() < 100) and turns < 20:
        x = x * 2
        turns += 1
    return x


def captured() -> ExportedProgram:
    """A captured program."""
    return torch.export.export(
        Affine().eval(), (torch.zeros(5, 4),), dynamic_shapes=({0: Dim.DYNAMIC},)
    )


def fixed() -> ExportedProgram:
    """A program that was captured for three rows."""
    return torch.export.export(Affine().eval(), (torch.zeros(3, 4),))


def scripted() -> torch.jit.ScriptModule:
    """A compiled module."""
    compiled: torch.jit.ScriptModule = torch.jit.script(PartlyScripted().eval())
    return compiled
