"""The steps of quantized outputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from exporter.manifest import Tolerance
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import measure_steps
from tests.worker.contracts import declare_input, declare_output, make_contract


class _Net(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def _quantize(x: Tensor, scale: float = 0.1) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that these functions are deprecated
        return torch.quantize_per_tensor(x, scale, 3, torch.quint8)


def _quantize_rows(x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scales = torch.tensor([0.1, 0.2, 0.3])
        return torch.quantize_per_channel(x, scales, torch.zeros(3), 0, torch.qint8).dequantize()


def _steps(function: Callable[[Tensor], Tensor], tolerance: Tolerance) -> tuple[float | None, ...]:
    spec = make_contract(
        "Net",
        inputs=(declare_input("x", 3, 4),),
        outputs=(declare_output("y", 3, 4),),
        axes=(),
        tolerance=tolerance,
    )
    return measure_steps(_Net(function), spec, {"x": torch.randn(3, 4)})


@pytest.mark.parametrize(
    "function",
    [
        lambda x: _quantize(x).dequantize(),
        lambda x: _quantize(x).dequantize().reshape(4, 3).T,
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255),
        lambda x: _quantize(_quantize(x, 0.5).dequantize()).dequantize(),
    ],
)
def test_the_scale_of_the_last_dequantization(function: Callable[[Tensor], Tensor]) -> None:
    assert _steps(function, Tolerance(steps=1.0)) == (pytest.approx(0.1),)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2,
        lambda x: _quantize(x).dequantize() * 2,
        lambda x: _quantize(x).dequantize().mul_(2),
        _quantize_rows,
    ],
)
def test_an_output_without_one_scale(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(Failure, match="does not dequantize output 'y' from one"):
        _steps(function, Tolerance(steps=1.0))
    assert _steps(function, Tolerance(atol=1.0)) == ()
