"""Contexts that read and change the operands of operators."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from exporter.worker.reference.rounding_runs import compute_in_float64, record_storages


class Mixed(nn.Module):
    """A lookup, a convolution, normalisation, attention and a buffer that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.linear = nn.Linear(8, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, tokens: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        y = self.table(tokens) + x
        y = self.norm(self.conv(y.transpose(1, 2))).transpose(1, 2)
        y, _ = self.attention(y, y, y)
        return torch.softmax(self.linear(y), -1) * self.calls


@pytest.mark.parametrize("scripted", [False, True])
def test_a_run_in_float64_needs_no_copy_of_the_weights(scripted: bool) -> None:
    torch.manual_seed(0)
    model = Mixed().eval()
    tokens, x = torch.randint(0, 11, (2, 5)), torch.randn(2, 5, 8)
    copied = copy.deepcopy(model).double()
    tested: nn.Module = torch.jit.script(nn.Linear(8, 4)) if scripted else model
    if scripted:
        tested.load_state_dict(model.linear.state_dict())
        expected = copied.linear(x.double())
        with torch.no_grad(), compute_in_float64():
            actual = tested(x.double())
    else:
        with torch.no_grad():
            expected = copied(tokens, x.double())
            with compute_in_float64():
                actual = tested(tokens, x.double())
        assert (model.calls, copied.calls) == (1, 1)
    assert actual.dtype is torch.float64
    assert torch.allclose(actual, expected, rtol=0, atol=1e-14)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


def test_the_storages_that_a_run_reads_are_recorded() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with record_storages() as addresses:
        model[0](torch.zeros(1, 4))
    read = [weight.untyped_storage().data_ptr() in addresses for weight in model.parameters()]
    assert read == [True, True, False, False]
