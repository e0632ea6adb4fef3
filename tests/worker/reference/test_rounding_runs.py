"""Runs with other rounding differ by units in the last place, and exact results stay equal."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from exporter.worker.export.weight_interface import record_storages
from exporter.worker.reference.large_float64 import compute_in_float64
from exporter.worker.reference.rounding_runs import (
    PLAIN_OPERATORS,
    compute_plainly,
    round_differently,
)

X = torch.randn((8, 64), generator=torch.Generator().manual_seed(0))
W = torch.randn((64, 8), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("seed", range(4))
def test_a_sum_differs_by_the_rounding_of_its_terms(seed: int) -> None:
    with round_differently(seed):
        y = X @ W
        canceled = (X - X.flip(1)).sum(1)
        bent = torch.tanh(X)
    exact = X @ W
    bound = 4 * 2.0**-23 * (X.abs() @ W.abs()) + 2.0**-24 * exact.abs()
    assert not torch.equal(y, exact)
    assert bool(((y - exact).abs() <= bound).all())
    assert bool((canceled != 0).all())
    assert torch.allclose(bent, torch.tanh(X), rtol=1e-6, atol=0)
    assert not torch.equal(bent, torch.tanh(X))


def test_exact_operators_and_zeros_do_not_change() -> None:
    zeros = torch.zeros(3, 64)
    with round_differently(0):
        pairs = [
            (X + 1, X.add(1)),
            (X.amax(1), X.max(1).values),
            (X.clone(), X),
            (zeros @ W, torch.zeros(3, 8)),
            (zeros.sum(1), torch.zeros(3)),
        ]
        indices = X.round().argmax(1)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert torch.equal(indices, X.round().argmax(1))


@pytest.mark.parametrize(
    ("result", "is_exact"),
    [
        (lambda: (X * 9).round().sum(1), True),
        (lambda: (X * 9).round() @ W.round() / 2, True),
        (lambda: (X * 9).round().mean(1), True),  # of 64 elements
        (lambda: (X * 9).round()[:, :60].mean(1), False),
        (lambda: (X * 9).round() @ W, False),
        (lambda: (X * 2**20).round().sum(1), False),
    ],
)
def test_exact_sums_do_not_change(result: Callable[[], torch.Tensor], *, is_exact: bool) -> None:
    usual = result()
    with round_differently(1):
        assert torch.equal(result(), usual) is is_exact


def test_normalizations_and_quantizations_have_the_rounding_of_their_input() -> None:
    equal = torch.full((1, 4, 8, 8), 0.7)
    halves = torch.full((1, 64), 0.05)
    with round_differently(1):
        normal = torch.nn.functional.group_norm(equal, 4)
        steps = torch.fake_quantize_per_tensor_affine(halves, 0.1, 0, -128, 127)
    assert 1e-5 < float(normal.abs().max()) < 1e-3
    assert len(steps.unique()) == 2


COUNT = 5000


def draw(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def run_plainly(model: object, x: torch.Tensor) -> torch.Tensor:
    assert callable(model)
    with torch.no_grad(), compute_plainly():
        result: torch.Tensor = model(x)
    return result


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x.cumsum(dim=1),
        lambda x: (1 + (x > 0.5).to(x.dtype) / 1024).cumprod(dim=-1),
        lambda x: x.sum(dim=1),
        lambda x: x.sum(),
        lambda x: x.mean(dim=(1,), keepdim=True),
        lambda x: x.mean(),
        lambda x: torch.view_as_real(torch.fft.fft(x, dim=1)),
        lambda x: torch.view_as_real(torch.fft.rfft(x, dim=1)),
        lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=1), dim=1),
    ],
)
def test_long_operators_have_a_larger_error(model: object) -> None:
    x = draw(3, COUNT)
    assert callable(model)
    plain, usual, exact = run_plainly(model, x), model(x), model(x.double())
    assert (plain.shape, plain.dtype) == (usual.shape, torch.float32)
    error, usual_error = ((one - exact).abs().max() / exact.abs().max() for one in (plain, usual))
    assert 2 * usual_error < error < 1e-3


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.float16])
@pytest.mark.parametrize("count", [10, COUNT])
def test_other_dtypes_and_short_sums_are_unchanged(dtype: torch.dtype, count: int) -> None:
    x = (draw(2, count) * 4).to(dtype)
    assert torch.equal(run_plainly(lambda x: x.cumsum(dim=1), x), x.cumsum(dim=1))
    short = draw(2, 2)  # two terms have one sum in any order
    assert torch.equal(run_plainly(lambda x: x.mean(dim=1), short), short.mean(dim=1))
    scalar = torch.tensor(2.0)
    assert run_plainly(lambda x: x.cumsum(dim=0) + x.sum(), scalar) == 4


def test_short_sums_have_another_result_in_the_other_order() -> None:
    x = draw(100, 14)
    with compute_plainly(is_reversed=True):
        other = x.sum(dim=1)
    assert not torch.equal(run_plainly(lambda x: x.sum(dim=1), x), other)


def test_a_cumulative_sum_adds_from_left_to_right() -> None:
    x = draw(2, COUNT)
    expected = np.add.accumulate(x.numpy(), axis=1, dtype=np.float32)
    assert np.array_equal(run_plainly(lambda x: x.cumsum(dim=1), x).numpy(), expected)


def test_sums_over_several_axes_keep_their_order() -> None:
    x = draw(3, 50, 2, 60)
    for dims in ((1, 3), (3, 1), (-1, 0), (0, 1, 2, 3)):
        plain = run_plainly(lambda x, dims=dims: x.sum(dim=dims), x)
        assert torch.allclose(plain, x.sum(dim=dims), rtol=1e-5)


def test_the_names_exist_in_torch() -> None:
    names = [name.split("::") for name in PLAIN_OPERATORS]
    assert all(hasattr(getattr(torch.ops, library), name) for library, name in names)


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
