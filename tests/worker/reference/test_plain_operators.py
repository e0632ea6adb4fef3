"""Operators in plain float32, which PyTorch computes with more precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from exporter.worker.reference.rounding_runs import PLAIN_OPERATORS, compute_plainly

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
    short = draw(2, 10)
    assert torch.equal(run_plainly(lambda x: x.mean(dim=1), short), short.mean(dim=1))
    scalar = torch.tensor(2.0)
    assert run_plainly(lambda x: x.cumsum(dim=0) + x.sum(), scalar) == 4


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
    names = {name.removeprefix("aten::") for name in PLAIN_OPERATORS}
    assert all(hasattr(torch.ops.aten, name) for name in names)
