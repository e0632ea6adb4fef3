"""A run with operators in plain float32, which PyTorch computes with more precision.

PyTorch adds a cumulative sum in float64, adds long sums by parts, and its FFT is unusually exact.
Runtimes add in float32 from left to right, and their angles of a DFT are float32 numbers. The sine
of an angle in the thousands has the rounding of the angle. The error of such a run relative to
float64 is what correct files may have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from exporter.runtimes.values import Array
from exporter.worker.reference.dispatch_modes import create_mode
from exporter.worker.torch_private.internals import read_schema

#: Shorter sums are within 8 units in the last place in any order.
_LONG = 1024
#: Error of a DFT as a share of its scale. ONNX Runtime is off by 1e-6 for powers of 2, by 1.2e-5
#: for 100 points. Eight times this error is 1e-5, the `atol` of `torch.testing`.
_DFT_ERROR = 1.25e-6
#: Angles in radians from which on their rounding is larger than that of a sine or cosine.
_LARGE_ANGLE = 100.0
_WAVES = frozenset({"aten::sin", "aten::cos"})
_TRANSFORMS = frozenset({"aten::_fft_r2c", "aten::_fft_c2r", "aten::_fft_c2c"})


@contextmanager
def compute_plainly() -> Iterator[None]:
    """Compute long sums from left to right inside, and transforms with the error of a runtime."""
    generator = torch.Generator().manual_seed(0)

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = str(read_schema(func).name)
        if name in _WAVES and args[0].dtype is torch.float32:
            args = (_round_large_angles(args[0], generator),)
        result = func(*args, **kwargs)
        if name in _TRANSFORMS:
            return _add_transform_error(result, generator)
        if name in _SUMS and isinstance(result, torch.Tensor) and result.dtype is torch.float32:
            return _SUMS[name](result, *args, **kwargs)
        return result

    with create_mode(run):
        yield


def _add_transform_error(result: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    numbers = torch.view_as_real(result) if result.is_complex() else result
    if result.dtype not in (torch.float32, torch.complex64) or not result.numel():
        return result
    share = torch.rand(numbers.shape, generator=generator) * 2 - 1
    changed = numbers + share.to(numbers.device) * (_DFT_ERROR * float(result.abs().max()))
    return torch.view_as_complex(changed) if result.is_complex() else changed


def _round_large_angles(angles: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    units = torch.randint(0, 2, angles.shape, generator=generator).to(angles.device) * 2 - 1
    rounded = angles + units * torch.finfo(angles.dtype).eps * angles
    return torch.where(angles.abs() < _LARGE_ANGLE, angles, rounded)


def _accumulate(values: torch.Tensor, dim: int, function: Any) -> torch.Tensor:
    """Return the partial results along an axis, from left to right in float32."""
    array: Array = values.detach().to("cpu", torch.float32).numpy()
    return torch.from_numpy(function.accumulate(array, axis=dim, dtype=np.float32))


def _sum_plainly(values: torch.Tensor, dims: list[int] | None) -> torch.Tensor:
    """Return the sums over the axes without them."""
    axes = sorted(dim % values.ndim for dim in dims or range(values.ndim))
    rest = [dim for dim in range(values.ndim) if dim not in axes]
    flat = values.permute(*rest, *axes).reshape(*(values.shape[dim] for dim in rest), -1)
    return _accumulate(flat, -1, np.add)[..., -1]


def _scan(function: Any) -> Callable[..., torch.Tensor]:
    def compute(result: torch.Tensor, values: torch.Tensor, dim: int, **_: Any) -> torch.Tensor:
        if not values.ndim or values.shape[dim] < _LONG:
            return result
        return _accumulate(values, dim, function).to(result.device)

    return compute


def _reduce(finish: Callable[[torch.Tensor, int], torch.Tensor]) -> Callable[..., torch.Tensor]:
    def compute(
        result: torch.Tensor,
        values: torch.Tensor,
        dims: list[int] | None = None,
        *_: Any,
        **__: Any,
    ) -> torch.Tensor:
        count = values.numel() // max(result.numel(), 1)
        if count < _LONG or not result.numel():
            return result
        return finish(_sum_plainly(values, dims), count).reshape(result.shape).to(result.device)

    return compute


_SUMS: dict[str, Callable[..., torch.Tensor]] = {
    "aten::cumsum": _scan(np.add),
    "aten::cumprod": _scan(np.multiply),
    "aten::sum": _reduce(lambda total, _: total),
    "aten::mean": _reduce(lambda total, count: total / count),
}
#: Operators that differ inside `compute_plainly`.
PLAIN_OPERATORS = _TRANSFORMS | _WAVES | _SUMS.keys()
