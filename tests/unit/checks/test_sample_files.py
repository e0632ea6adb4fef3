from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx.helper import tensor_dtype_to_np_dtype

from exporter.checks.protocol import DamagedSample, SampleCache, read_sample, write_sample
from exporter.manifest import Input, Output
from tests.unit.checks.contexts import contract, value

BFLOAT16 = tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)
TWO = contract(
    inputs=(value(Input, "b", "2"), value(Input, "a", "")),
    outputs=(value(Output, "y", "2"), value(Output, "z", "1", "int64")),
)
INPUTS = [np.array([1, 2], np.float32), np.array(3, np.float32)]
OUTPUTS = [np.array([4, 5], np.float32), np.array([6])]
EXACT = [np.array([4.5, 5.5]), np.array([6])]


def test_a_written_sample_can_be_read(tmp_path: Path) -> None:
    write_sample(tmp_path / "deep" / "s", INPUTS, OUTPUTS, EXACT)
    data = read_sample(tmp_path / "deep" / "s", TWO)
    assert list(data.inputs) == ["b", "a"]
    for sample_data, expected in zip(
        (*data.inputs.values(), *data.outputs), (*INPUTS, *OUTPUTS), strict=True
    ):
        np.testing.assert_array_equal(sample_data, expected, strict=True)
    assert data.float64_outputs[0] is not None
    np.testing.assert_array_equal(data.float64_outputs[0], EXACT[0], strict=True)
    assert data.float64_outputs[1] is None, "an integer has no value in float64"
    write_sample(tmp_path, INPUTS, OUTPUTS)
    assert read_sample(tmp_path, TWO).float64_outputs == (None, None)


@pytest.mark.parametrize(
    "dtype",
    ["float16", BFLOAT16, "float32", "float64", "int8", "int64", "uint8", "bool", "complex64"],
)
def test_every_dtype_keeps_its_bits(dtype: Any, tmp_path: Path) -> None:
    array = np.array([[0, 1], [1, 0]]).astype(dtype)
    spec = contract(inputs=(value(Input, "x", "2, 2"),))
    write_sample(tmp_path, [array], [array])
    data = read_sample(tmp_path, spec)
    assert data.outputs[0].dtype == array.dtype
    assert data.outputs[0].tobytes() == data.inputs["x"].tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "array",
    [np.zeros((0, 3)), np.float64(np.nan), np.array(-np.inf), np.arange(6.0).reshape(2, 3).T],
)
def test_arrays_of_any_shape_and_memory_order(array: Any, tmp_path: Path) -> None:
    write_sample(tmp_path, [array], [array])
    data = read_sample(tmp_path, contract())
    np.testing.assert_array_equal(data.outputs[0], array)
    assert data.outputs[0].shape == array.shape


def test_the_same_arrays_give_the_same_bytes_in_the_format_of_onnx(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_sample(tmp_path / name, INPUTS, OUTPUTS, EXACT)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == [
        "float64_0.pb", "float64_1.pb", "input_0.pb", "input_1.pb", "output_0.pb", "output_1.pb",
    ]  # fmt: skip
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    tensor = onnx.load_tensor(tmp_path / "one" / "output_0.pb")
    np.testing.assert_array_equal(numpy_helper.to_array(tensor), OUTPUTS[0])


@pytest.mark.parametrize(
    ("outputs", "removed", "message"),
    [
        ((), "", "has 0 outputs, the contract has 2"),
        ([*OUTPUTS, OUTPUTS[0]], "", "has 3 outputs, the contract has 2"),
        (OUTPUTS, "input_1.pb", "has 1 inputs, the contract has 2"),
        (OUTPUTS, "output_0.pb", "has 1 outputs, the contract has 2"),
        # the right number of files, but another name
        ([*OUTPUTS, OUTPUTS[0]], "output_0.pb", "output_0.pb cannot be read: FileNotFoundError"),
    ],
)
def test_other_files_are_a_damaged_sample(
    outputs: Any, removed: str, message: str, tmp_path: Path
) -> None:
    write_sample(tmp_path, INPUTS, outputs)
    if removed:
        (tmp_path / removed).unlink()
    with pytest.raises(DamagedSample, match=message):
        read_sample(tmp_path, TWO)


def test_counts_that_differ_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 outputs, but 1 in float64"):
        write_sample(tmp_path, INPUTS, OUTPUTS, EXACT[:1])


@pytest.mark.parametrize("name", ["input_0.pb", "output_1.pb", "float64_0.pb"])
@pytest.mark.parametrize("size", [1, -1])
def test_a_truncated_file(name: str, size: int, tmp_path: Path) -> None:
    write_sample(tmp_path, INPUTS, OUTPUTS, EXACT)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DamagedSample, match=f"{name} cannot be read") as raised:
        read_sample(tmp_path, TWO)
    assert str(tmp_path) not in str(raised.value).replace(tmp_path.name, "")


def test_a_sample_within_the_memory_limit_is_read_once(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_sample(tmp_path / name, INPUTS, OUTPUTS, EXACT)
    size = sum(array.nbytes for array in (*INPUTS, *OUTPUTS, EXACT[0]))
    memory = SampleCache(size + 1)
    first, second = (memory.read(tmp_path / name, TWO) for name in ("first", "second"))
    assert memory.read(tmp_path / "first", TWO) is first
    again = memory.read(tmp_path / "second", TWO)
    assert again is not second, "there is no room for it"
    np.testing.assert_array_equal(again.outputs[0], second.outputs[0])


def test_a_damaged_sample_is_not_cached(tmp_path: Path) -> None:
    memory = SampleCache()
    with pytest.raises(DamagedSample):
        memory.read(tmp_path, TWO)
    write_sample(tmp_path, INPUTS, OUTPUTS)
    assert list(memory.read(tmp_path, TWO).inputs) == ["b", "a"]
