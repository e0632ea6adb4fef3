"""Runs with other rounding differ by units in the last place, and exact results stay equal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from exporter.worker.reference.rounding_runs import round_differently

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
