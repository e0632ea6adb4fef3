"""Conversion of tensors to arrays of a file, with the same values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from exporter.worker.inputs.call import from_numpy, to_numpy, view_as_real

DTYPES = [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64, torch.complex128])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_a_round_trip_keeps_values_shape_and_dtype(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    tensor = torch.randn(shape).mul(3).to(dtype)
    array = to_numpy(tensor)
    assert array.shape == ((*shape, 2) if dtype.is_complex else shape)
    assert array.dtype.name == {
        torch.complex64: "float32",
        torch.complex128: "float64",
    }.get(dtype, str(dtype).removeprefix("torch."))
    restored = from_numpy(array, is_complex=dtype.is_complex)
    assert restored.dtype is dtype
    assert torch.equal(restored, tensor)


def test_complex_numbers_become_pairs_of_real_and_imaginary_part() -> None:
    number = torch.tensor(3 - 4j)
    np.testing.assert_array_equal(to_numpy(number), np.float32([3, -4]), strict=True)
    # The conjugate of a tensor is a flag on it, as is the sign of its imaginary part.
    np.testing.assert_array_equal(to_numpy(number.conj()), np.float32([3, 4]), strict=True)
    np.testing.assert_array_equal(to_numpy(number.conj().imag), np.float32(4), strict=True)
    assert view_as_real(torch.ones(2)).shape == (2,)
