"""The conditions of a capture are read however torch keeps them."""

from __future__ import annotations

import pytest
import torch

from exporter.worker.torch_private import graph_operators
from exporter.worker.torch_private.graph_operators import list_conditions


class Divisible(torch.nn.Module):
    """A model with a branch on a size, which its program has no longer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] % 3 == 0 else x


@pytest.mark.parametrize("defers", [True, False])
def test_a_condition_is_listed_as_an_assertion_and_as_a_guard(
    defers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_operators, "defers_guards", lambda: defers)
    program = torch.export.export(
        Divisible(),
        (torch.zeros(6),),
        dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
        strict=False,
        prefer_deferred_runtime_asserts_over_guards=defers,
    )
    [condition] = list_conditions(program)
    assert "% 3" in condition or "Mod(" in condition
