"""The names of the values that a call changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from exporter.worker.model.model_kinds import ScriptedFunction
from exporter.worker.reference.python_state import PythonState


class Holder(nn.Module):
    """A model that changes its attributes by a given function."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.table = torch.zeros(3)
        self.outputs: list[Tensor] = []
        self.known: dict[str, int] = {"a": 1}
        self.register_buffer("running", torch.zeros(2))

    def forward(self, act: Any) -> None:
        act(self)


@pytest.mark.parametrize(
    "act",
    [
        lambda net: setattr(net, "first", torch.ones(1)),
        lambda net: setattr(net, "table", torch.zeros(3)),
        lambda net: net.table.add_(1),
        lambda net: net.outputs.append(torch.ones(1)),
        lambda net: net.known.update(a=1000),
        lambda net: delattr(net, "known"),
        lambda net: setattr(net.inner, "cache", 1),
    ],
)
def test_a_change_is_detected(act: Any) -> None:
    model = Holder()
    snapshot = PythonState(model)
    assert not snapshot.list_changes()
    model(act)
    assert snapshot.list_changes()


@pytest.mark.parametrize(
    "act", [lambda net: None, lambda net: net.running.add_(1), lambda net: net.table + 1]
)
def test_buffers_and_reads_are_no_change(act: Any) -> None:
    model = Holder()
    snapshot = PythonState(model)
    with torch.no_grad():
        model(act)
    assert not snapshot.list_changes()


def test_a_compiled_function_has_no_attributes() -> None:
    function = torch.jit.script(lambda_like)
    assert not PythonState(ScriptedFunction(function)).list_changes()


def lambda_like(x: Tensor) -> Tensor:
    return x + 1
