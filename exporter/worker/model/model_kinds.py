"""The kinds of models that differ in more than their code: all of them are modules."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch

#: A model that is ready to run.
Model: TypeAlias = torch.nn.Module


class ScriptedFunction(torch.nn.Module):
    """A function that TorchScript compiled, as a module without weights."""

    def __init__(self, function: torch.jit.ScriptFunction[Any, Any]) -> None:
        super().__init__()
        self.function = function
        self.forward = function  # also its signature

    def __deepcopy__(self, _: dict[int, Any]) -> ScriptedFunction:
        return self  # it has no weights that a copy could change


def is_compiled(model: torch.nn.Module) -> bool:
    """Return whether TorchScript compiled the model: it has no Python code and no hooks."""
    return isinstance(model, torch.jit.ScriptModule | ScriptedFunction)


def describe_kind(model: torch.nn.Module) -> str:
    """Return the name of the class in messages."""
    return "ScriptFunction" if isinstance(model, ScriptedFunction) else type(model).__name__
