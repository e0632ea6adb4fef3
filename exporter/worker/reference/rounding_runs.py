"""Runs with other rounding: what another correct implementation of the operators may compute.

Operators such as a matrix product or `exp` have an error of a few units in the last place, which
differs between implementations. If that decides which of two near values a model selects, its
outputs are far from each other, and both are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from exporter.runtimes.session import Array
from exporter.worker.model.onnx_model import compute_in_other_order
from exporter.worker.reference.operator_calls import create_mode
from exporter.worker.torch_private import internals
from exporter.worker.torch_private.internals import read_schema

#: Units in the last place by which results change: of the result, or of the terms of a sum.
_UNITS = (1, 4)
#: Sums of terms. Their error follows the terms, which may cancel.
_SUMS = frozenset(
    f"aten::{name}"
    for name in (
        *("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "convolution", "_convolution"),
        *("sum", "mean", "cumsum"),
    )
)
#: Operators whose results jump at a threshold; the operators that select are others.
STEPS = frozenset(
    f"aten::{name}"
    for name in (
        *("gt", "ge", "lt", "le", "eq", "ne", "sign", "round", "floor", "ceil", "trunc"),
        *("bucketize", "searchsorted", "heaviside", "nonzero", "floor_divide", "remainder"),
    )
)
#: Operators with rounding that IEEE 754 does not define. The results of others, such as `add`,
#: `max` or a copy, are equal in all implementations: their ties are exact.
_ROUNDED = frozenset(
    f"aten::{name}"
    for name in (
        *("var", "var_mean", "std", "norm", "linalg_vector_norm", "prod"),
        *("cumprod", "logsumexp", "logcumsumexp", "_softmax", "_log_softmax"),
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "rsqrt", "softplus"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh"),
        *("silu", "gelu", "elu", "mish", "erf", "erfc", "erfinv", "log_sigmoid_forward"),
        *("mkldnn_rnn_layer", "_fft_r2c", "_fft_c2r", "_fft_c2c", "_cdist_forward"),
        *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math"),
        *("upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
        *("grid_sampler_2d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d"),
    )
)
#: Operators that quantize their first argument, with a step that rounding selects.
QUANTIZING = frozenset(
    f"{library}::{name}"
    for library, names in (
        ("quantized_decomposed", ("quantize_per_tensor", "quantize_per_channel")),
        (
            "aten",
            (
                *("quantize_per_tensor", "quantize_per_channel", "quantize_per_tensor_dynamic"),
                *("fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine"),
                "fake_quantize_per_tensor_affine_cachemask",
                "fake_quantize_per_channel_affine_cachemask",
            ),
        ),
    )
    for name in names
)
#: Operators with the error of their first argument: they subtract a mean, or quantize.
_CONDITIONED = QUANTIZING | frozenset(
    f"aten::{name}"
    for name in (
        *("native_layer_norm", "native_group_norm", "native_batch_norm", "cudnn_batch_norm"),
        *("_native_batch_norm_legit", "_native_batch_norm_legit_no_training"),
        *("_batch_norm_no_update", "_batch_norm_with_update"),
    )
)
#: Bits of the largest integer up to which float32 contains all integers.
_INTEGER_BITS = 24


def count_terms(name: str, args: tuple[Any, ...]) -> int:
    """Return the number of products in each element of a matrix product or a convolution."""
    factors = [each for each in args if isinstance(each, torch.Tensor) and each.ndim > 1]
    if name not in _SUMS or len(factors) < 2 or not factors[-1].numel():
        return 0
    is_convolution = name in ("aten::convolution", "aten::_convolution")
    return factors[1][0].numel() if is_convolution else factors[-1].shape[-2]


@contextmanager
def round_differently(seed: int) -> Iterator[None]:
    """Change the results of operators with rounding inside by a few units in the last place."""
    generator = torch.Generator().manual_seed(seed)
    units = _UNITS[seed % len(_UNITS)]

    def change(value: Any, size: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        share = torch.rand(value.shape, generator=generator, dtype=torch.float64).mul_(2).sub_(1)
        error = share.to(value.device).mul_(units * torch.finfo(value.dtype).eps).mul_(size.abs())
        return error.add_(value).to(value.dtype)  # a sum without terms stays 0

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = str(read_schema(func).name)
        if name in _CONDITIONED:
            args = (change(args[0], args[0]), *args[1:])
        result = func(*args, **kwargs)
        if name in _SUMS:
            sizes = func(*internals.tree_map(_remove_sign, args), **kwargs)
            count = args[0].numel() // max(sizes.numel(), 1) if name == "aten::mean" else 1
            return change(result, _remove_exact_sums(sizes, args, count))
        if name in _SIGMOIDS:  # 4 units of 1/8 are the error of a runtime
            return change(result, torch.full_like(result, 0.125))
        if name in _ROUNDED:
            return internals.tree_map(lambda value: change(value, value), result)
        return result

    with create_mode(run), compute_in_other_order(seed):
        yield


def _remove_exact_sums(sizes: torch.Tensor, args: tuple[Any, ...], count: int) -> torch.Tensor:
    """Return the sizes of the sums with 0 for sums that are exact in every order of the terms.

    Args:
        sizes: The sums of the magnitudes of the terms.
        args: The factors of the terms.
        count: The number by which each sum is divided.
    """
    if sizes.dtype is not torch.float32 or count & (count - 1):
        return sizes
    largest = 2.0**_INTEGER_BITS / count
    for tensor in internals.tree_leaves(args):
        if isinstance(tensor, torch.Tensor):
            digits = next((bits for bits in (0, 2, 8) if _has_digits(tensor, bits)), None)
            if digits is None:
                return sizes
            largest /= 2**digits
    return torch.where(sizes <= largest, torch.zeros_like(sizes), sizes)


def _has_digits(tensor: torch.Tensor, count: int) -> bool:
    """Return True if no element has more than so many binary digits after the point."""
    first = tensor.reshape(-1)[:1024]  # few elements show it for most tensors
    parts = (each * 2**count for each in (first, tensor))
    return all(torch.equal(each, each.round()) for each in parts)


def _remove_sign(value: Any) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.abs() if is_float else value


#: Shorter sums are within 8 units in the last place in any order.
_LONG = 1024
#: Terms of a sum whose order can matter: terms may cancel, so that a short sum is near zero.
_SHORTEST = 3
#: Error of a DFT as a share of its scale. ONNX Runtime is off by 1e-6 for powers of 2, by 1.2e-5
#: for 100 points. Eight times this error is 1e-5, the `atol` of `torch.testing`.
_DFT_ERROR = 1.25e-6
#: Angles in radians from which on their rounding is larger than that of a sine or cosine.
_LARGE_ANGLE = 100.0
_WAVES = frozenset({"aten::sin", "aten::cos"})
#: Error of a sigmoid near 0 and 1: runtimes compute it from approximations of about 1.
_SIGMOID_ERROR = 2.0**-25
_SIGMOIDS = frozenset({"aten::sigmoid"})
_TRANSFORMS = frozenset({"aten::_fft_r2c", "aten::_fft_c2r", "aten::_fft_c2c"})


@contextmanager
def compute_plainly(*, is_reversed: bool = False) -> Iterator[None]:
    """Compute long sums from left to right inside, and transforms with the error of a runtime.

    `is_reversed`: True for sums from right to left, whose error is another one.
    """
    generator = torch.Generator().manual_seed(0)

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = str(read_schema(func).name)
        if name in _WAVES and args[0].dtype is torch.float32:
            angles = args[0]
            signs = torch.randint(0, 2, angles.shape, generator=generator).to(angles.device) * 2 - 1
            rounded = angles + signs * torch.finfo(angles.dtype).eps * angles
            args = (torch.where(angles.abs() < _LARGE_ANGLE, angles, rounded),)
        result = func(*args, **kwargs)
        if name in _WITH_SUMS and _has_long_sums(args[0], result):
            decomposed = internals.find_decomposition(func)
            with create_mode(run):
                return decomposed(*args, **kwargs) if decomposed else result
        if name in _TRANSFORMS:
            return _add_error(result, _DFT_ERROR * float(result.abs().amax()), generator)
        if name in _SIGMOIDS:
            return _add_error(result, _SIGMOID_ERROR, generator)
        if (
            name in _PLAIN_SUMS
            and isinstance(result, torch.Tensor)
            and result.dtype is torch.float32
        ):
            return _PLAIN_SUMS[name](result, *args, is_reversed=is_reversed, **kwargs)
        return result

    with create_mode(run):
        yield


def _has_long_sums(values: torch.Tensor, result: Any) -> bool:
    """Return True if the statistics in a result are from many elements each."""
    counts = [each.numel() for each in internals.tree_leaves(result) if each.numel()]
    return bool(counts) and values.numel() // min(counts) >= _LONG


def _add_error(result: torch.Tensor, error: float, generator: torch.Generator) -> torch.Tensor:
    numbers = torch.view_as_real(result) if result.is_complex() else result
    if result.dtype not in (torch.float32, torch.complex64):
        return result
    share = torch.rand(numbers.shape, generator=generator) * 2 - 1
    changed = numbers + share.to(numbers.device) * error
    return torch.view_as_complex(changed) if result.is_complex() else changed


def _accumulate(values: torch.Tensor, dim: int, function: Any) -> torch.Tensor:
    """Return the partial results along an axis, from left to right in float32."""
    array: Array = values.detach().to("cpu", torch.float32).numpy()
    return torch.from_numpy(function.accumulate(array, axis=dim, dtype=np.float32))


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
        is_reversed: bool = False,
        **__: Any,
    ) -> torch.Tensor:
        count = values.numel() // max(result.numel(), 1)
        if count < _SHORTEST or not result.numel():
            return result
        # The sums over the axes, without these axes.
        axes = sorted(dim % values.ndim for dim in dims or range(values.ndim))
        rest = [dim for dim in range(values.ndim) if dim not in axes]
        flat = values.permute(*rest, *axes).reshape(*(values.shape[dim] for dim in rest), -1)
        sums = _accumulate(flat.flip(-1) if is_reversed else flat, -1, np.add)[..., -1]
        return finish(sums, count).reshape(result.shape).to(result.device)

    return compute


def _compute_variance(
    result: torch.Tensor,
    values: torch.Tensor,
    dims: list[int] | None = None,
    correction: float | None = 1,
    is_reversed: bool = False,
    **_: Any,
) -> torch.Tensor:
    usual = values.mean(dims or tuple(range(values.ndim)), keepdim=True)
    mean = _PLAIN_SUMS["aten::mean"](usual, values, dims, is_reversed=is_reversed)
    divide = _reduce(lambda total, count: total / (count - (correction or 0)))
    return divide(result, (values - mean).square(), dims, is_reversed=is_reversed)


_PLAIN_SUMS: dict[str, Callable[..., torch.Tensor]] = {
    "aten::cumsum": _scan(np.add),
    "aten::cumprod": _scan(np.multiply),
    "aten::sum": _reduce(lambda total, _: total),
    "aten::mean": _reduce(lambda total, count: total / count),
    "prims::sum": _reduce(lambda total, _: total),
    "prims::var": _compute_variance,
}
#: Operators that torch decomposes into sums and other operators.
_WITH_SUMS = _CONDITIONED - QUANTIZING | frozenset(
    f"aten::{name}" for name in ("var", "var_mean", "std", "std_mean", "norm", "linalg_vector_norm")
)
#: Operators that differ inside `compute_plainly`.
PLAIN_OPERATORS = _TRANSFORMS | _WAVES | _SIGMOIDS | _WITH_SUMS | _PLAIN_SUMS.keys()
