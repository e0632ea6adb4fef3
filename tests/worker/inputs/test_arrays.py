"""Tensors as arrays of a file: the same values in a form that numpy and ONNX know."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from exporter.worker.inputs.arrays import from_numpy, to_numpy, view_as_real

DTYPES = [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64, torch.complex128])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_there_and_back(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape).mul(3).to(dtype)
    array = to_numpy(tensor)
    assert array.shape == ((*shape, 2) if dtype.is_complex else shape)
    assert array.dtype.name == {
        torch.complex64: "float32",
        torch.complex128: "float64",
    }.get(dtype, str(dtype).removeprefix("torch."))
    back = from_numpy(array, is_complex=dtype.is_complex)
    assert back.dtype is dtype
    assert torch.equal(back, tensor)


def test_pairs_are_real_and_imaginary_part() -> None:
    number = torch.tensor(3 - 4j)
    np.testing.assert_array_equal(to_numpy(number), np.float32([3, -4]), strict=True)
    # The conjugate of a tensor is a flag on it, as is the sign of its imaginary part.
    np.testing.assert_array_equal(to_numpy(number.conj()), np.float32([3, 4]), strict=True)
    np.testing.assert_array_equal(to_numpy(number.conj().imag), np.float32(4), strict=True)
    assert view_as_real(torch.ones(2)).shape == (2,)
