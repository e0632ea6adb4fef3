"""Tensors from files, and the messages for unreadable files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from safetensors.torch import save_file

from exporter.manifest import Axis, Case, Fill, ModelSpec
from exporter.worker.inputs.input_sets import choose_usual_sets
from exporter.worker.inputs.input_tensors import draw_inputs, fit_to_shape, read_tensor
from exporter.worker.process.failure import Failure
from tests.worker.contracts import declare_input, make_contract, make_fill

_ARRAY = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", _ARRAY)
    np.savez(tmp_path / "x.npz", a=_ARRAY, b=_ARRAY.astype(">f4"), c=np.array(["text"]))
    tensor = torch.from_numpy(_ARRAY)
    save_file({"a": tensor, "half": tensor.to(torch.bfloat16)}, tmp_path / "x.safetensors")
    (tmp_path / "x.pb").write_bytes(numpy_helper.from_array(_ARRAY).SerializeToString())
    return tmp_path


@pytest.mark.parametrize("text", ["x.npy", "x.pb", "x.npz:a", "x.npz:b", "x.safetensors:a"])
def test_every_format_contains_the_same_tensor(text: str, folder: Path) -> None:
    tensor = read_tensor(folder, text)
    assert tensor.dtype is torch.float32
    assert torch.equal(tensor, torch.from_numpy(_ARRAY))


def test_bfloat16_stays_bfloat16(folder: Path) -> None:
    assert read_tensor(folder, "x.safetensors:half").dtype is torch.bfloat16
    proto = onnx.helper.make_tensor("x", onnx.TensorProto.BFLOAT16, [2], [1.0, 2.0])
    (folder / "half.pb").write_bytes(proto.SerializeToString())
    assert torch.equal(read_tensor(folder, "half.pb"), torch.tensor([1, 2], dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x.npz:aa", "x.npz has no tensor 'aa'; did you mean 'a'?"),
        ("x.safetensors:zz", "x.safetensors has no tensor 'zz'; it has a, half"),
        ("x.npz:c", "is not a dtype of tensors"),
        ("gone.npy", "gone.npy: the file cannot be read"),
        ("bad.npy", "bad.npy: the file cannot be read"),
        ("bad.npz:a", "bad.npz: the file cannot be read"),
        ("bad.pb", "bad.pb: the file cannot be read"),
        ("bad.safetensors:a", "bad.safetensors: the file cannot be read"),
        ("objects.npy", "objects.npy: the file cannot be read: Object arrays cannot be loaded"),
    ],
)
def test_an_unreadable_tensor_is_reported(text: str, message: str, folder: Path) -> None:
    for suffix in ("npy", "npz", "pb", "safetensors"):
        (folder / f"bad.{suffix}").write_bytes(b"\x93NUMPY no tensor \xff" * 9)
    np.save(folder / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(Failure) as caught:
        read_tensor(folder, text)
    assert message in caught.value.message
    assert str(folder) not in caught.value.message


def test_at_other_sizes_values_are_cut_or_repeated() -> None:
    tensor = torch.arange(6).reshape(3, 2)
    item = declare_input("x", "batch", 2)
    assert fit_to_shape(tensor, item, (2, 2)).tolist() == [[0, 1], [2, 3]]
    assert fit_to_shape(tensor, item, (5, 2)).tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]
    assert fit_to_shape(tensor, item, (0, 2)).shape == (0, 2)
    assert fit_to_shape(tensor, item, (3, 4)).shape == (3, 2), "a fixed size is checked later"


def _spec(**changes: object) -> ModelSpec:
    inputs = (declare_input("x", fill=make_fill("file", file="x.npy")),)
    return make_contract("Affine", manifest="net.toml", inputs=inputs, **changes)


def test_a_set_has_the_values_of_the_file(folder: Path) -> None:
    np.save(folder / "five.npy", np.ones((5, 4), np.float32))
    case = Case(name="five", axes={"batch": 5}, fills={"x": Fill(kind="file", file="five.npy")})
    spec = _spec(cases=(case,))
    drawn = {each.name: draw_inputs(spec, each, folder)["x"] for each in choose_usual_sets(spec)}
    assert torch.equal(drawn["declared"], torch.from_numpy(_ARRAY))
    assert torch.equal(drawn["five"], torch.ones(5, 4))
    assert not torch.equal(drawn["other x"], drawn["declared"])
    assert torch.equal(drawn["batch=1"], drawn["declared"][:1])


@pytest.mark.parametrize("change", ["axes", "dtype"])
def test_a_file_of_another_shape_or_dtype_fails_with_both(change: str, folder: Path) -> None:
    if change == "axes":
        spec = _spec(axes=(Axis(name="batch", example=5),))
    else:
        np.save(folder / "x.npy", _ARRAY.astype(np.float64))
        spec = _spec()
    with pytest.raises(Failure) as caught:
        draw_inputs(spec, choose_usual_sets(spec)[0], folder)
    assert "declared float32 [" in caught.value.message
    assert "(from x.npy)" in caught.value.message
