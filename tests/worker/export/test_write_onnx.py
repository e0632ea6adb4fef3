"""External data is written once, with the bytes of the exporter."""

from __future__ import annotations

import hashlib
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from onnx import numpy_helper
from safetensors import SafetensorError, safe_open
from torch.onnx._internal.exporter._core import TorchTensor

from exporter.jobs import JobFolder, format_weights_name
from exporter.worker.export.write_onnx import write_artifact
from tests.worker.contracts import make_contract

SPEC = make_contract(
    "Affine", "x [batch, 3] -> y [batch, 3]", opsets=(18, 19), options={"external_data": True}
)


def write(folder: Path, opset: int, **weights: ir.TensorProtocol) -> Path:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["batch", 3]))
    values = []
    for name, tensor in weights.items():
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape)
        value.const_value = tensor
        values.append(value)
    node = ir.node("Identity", [x])
    node.outputs[0].name = "y"
    graph = ir.Graph(
        [x], node.outputs, nodes=[node], initializers=values, opset_imports={"": opset}
    )
    return write_artifact(ir.Model(graph, ir_version=10), SPEC, opset, JobFolder(folder), {})


def data(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def test_equal_weights_are_written_once(tmp_path: Path) -> None:
    weight = torch.randn(40, 30)
    write(tmp_path, 18, w=TorchTensor(weight))
    (name,) = data(tmp_path)
    before = (tmp_path / name).stat()
    write(tmp_path, 19, w=ir.tensor(weight.numpy().copy()))
    assert list(data(tmp_path)) == [name]
    assert (tmp_path / name).stat() == before
    assert name == format_weights_name(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    with safe_open(tmp_path / name, "pt") as file:
        assert torch.equal(file.get_tensor("w"), weight)


@pytest.mark.parametrize("index", [0, 700, 1199])
def test_one_different_number_gives_another_file(tmp_path: Path, index: int) -> None:
    weight = torch.randn(40, 30)
    write(tmp_path, 18, w=TorchTensor(weight))
    other = weight.clone()
    other.view(-1)[index] += 1
    write(tmp_path, 19, w=TorchTensor(other))
    assert len(data(tmp_path)) == 2
    contents = {content[-weight.nbytes :] for content in data(tmp_path).values()}
    assert contents == {weight.numpy().tobytes(), other.numpy().tobytes()}


def test_changed_header_is_detected(tmp_path: Path) -> None:
    first, second = torch.randn(300), torch.randn(300)
    write(tmp_path, 18, a=TorchTensor(first), b=TorchTensor(second))
    ((name, before),) = data(tmp_path).items()
    # The padding of the header is part of the file and of its hash.
    changed = bytearray(before)
    changed[2000] = 1
    (tmp_path / name).write_bytes(changed)
    write(tmp_path, 19, a=TorchTensor(first), b=TorchTensor(second))
    assert data(tmp_path) == {name: before}


@pytest.mark.parametrize("harm", ["flipped", "cut", "longer", "empty"])
def test_file_with_wrong_hash_is_written_again(tmp_path: Path, harm: str) -> None:
    weight = torch.randn(40, 30)
    write(tmp_path, 18, w=TorchTensor(weight))
    ((name, before),) = data(tmp_path).items()
    path = tmp_path / name
    if harm == "flipped":
        path.write_bytes(bytes([before[0] ^ 1]) + before[1:])
    else:
        path.write_bytes({"cut": before[:-1], "longer": before + b"x", "empty": b""}[harm])
    write(tmp_path, 19, w=TorchTensor(weight))
    assert data(tmp_path) == {name: before}
    assert [item.name for item in tmp_path.iterdir() if item.name.startswith(".")] == []


def test_symlink_is_replaced_by_a_file(tmp_path: Path) -> None:
    weight = torch.randn(40, 30)
    folder, target = tmp_path / "model", tmp_path / "target"
    folder.mkdir()
    write(folder, 18, w=TorchTensor(weight))
    ((name, before),) = data(folder).items()
    (folder / name).rename(target)
    (folder / name).symlink_to(target)
    write(folder, 19, w=TorchTensor(weight))
    assert not (folder / name).is_symlink()
    assert data(folder) == {name: before}


def stored(path: Path, name: str) -> np.ndarray:
    model = onnx.load(path)
    (weight,) = (tensor for tensor in model.graph.initializer if tensor.name == name)
    return numpy_helper.to_array(weight)


WEIGHT = np.arange(1200, dtype=np.float32).reshape(30, 40)
TENSORS = {
    "plain": ir.tensor(WEIGHT),
    "transposed": ir.tensor(WEIGHT.T),
    "transposed by torch": TorchTensor(torch.from_numpy(WEIGHT).T),
    "parameter": TorchTensor(torch.nn.Parameter(torch.from_numpy(WEIGHT.copy()))),
    "bfloat16": TorchTensor(torch.from_numpy(WEIGHT).to(torch.bfloat16)),
    "float16": TorchTensor(torch.from_numpy(WEIGHT).half()),
    "int8": TorchTensor(torch.from_numpy(WEIGHT.repeat(2)).to(torch.int8)),
    "bool": TorchTensor(torch.from_numpy(WEIGHT.repeat(2)) > 3),
    "int64": TorchTensor(torch.from_numpy(WEIGHT).long()),
    "int4": ir.tensor((WEIGHT.repeat(4) % 7).astype(ml_dtypes.int4)),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_file_contains_bytes_of_the_tensor(tmp_path: Path, kind: str) -> None:
    tensor = TENSORS[kind]
    path = write(tmp_path, 18, w=tensor)
    (name,) = data(tmp_path)
    with safe_open(tmp_path / name, "pt") as file:
        read = file.get_tensor("w")
    assert read.view(torch.uint8).numpy().tobytes() == tensor.tobytes()
    # Safetensors lacks int4: the file has its bytes, and the graph has the type.
    assert list(read.shape) == ([tensor.nbytes] if kind == "int4" else list(tensor.shape))
    result = stored(path, "w")
    assert result.dtype == tensor.numpy().dtype
    np.testing.assert_array_equal(result, tensor.numpy())


def offsets(path: Path) -> dict[str, int]:
    entries = {
        tensor.name: {entry.key: entry.value for entry in tensor.external_data}
        for tensor in onnx.load(path, load_external_data=False).graph.initializer
    }
    return {name: int(each["offset"]) for name, each in entries.items() if each}


def test_equal_tensors_share_their_bytes(tmp_path: Path) -> None:
    weight = torch.randn(40, 30)
    other = weight.clone()
    other[-1, -1] += 1
    weights = {"a": weight, "b": weight.clone(), "other": other, "turned": weight.view(30, 40)}
    path = write(tmp_path, 18, **{name: TorchTensor(each) for name, each in weights.items()})
    (name,) = data(tmp_path)
    with safe_open(tmp_path / name, "pt") as file:
        assert set(file.keys()) == {"a", "other", "turned"}
        assert file.metadata() == {"b": "a"}
    starts = offsets(path)
    assert starts["a"] == starts["b"]
    assert len(set(starts.values())) == 3
    for each, value in weights.items():
        np.testing.assert_array_equal(stored(path, each), value.numpy())


def test_tensors_are_aligned_without_holes(tmp_path: Path) -> None:
    sizes = {"a": 257, "b": 1024, "c": 300, "d": 4096, "e": 1031}
    weights = {name: TorchTensor(torch.randn(size)) for name, size in sizes.items()}
    weights["flags"] = TorchTensor(torch.randn(1025) > 0)
    path = write(tmp_path, 18, **weights)
    (name,) = data(tmp_path)
    starts = offsets(path)
    assert starts["b"] % 4096 == starts["d"] % 4096 == starts["c"] % 16 == 0
    assert all(start % 4 == 0 for each, start in starts.items() if each != "flags")
    total = sum(tensor.nbytes for tensor in weights.values())
    assert (tmp_path / name).stat().st_size == min(starts.values()) + total
    with (tmp_path / name).open("ab") as file:  # safetensors reads no file with a hole
        file.write(bytes(4))
    with pytest.raises(SafetensorError):
        safe_open(tmp_path / name, "pt")


@pytest.mark.parametrize(
    ("names", "is_shared"),
    [(("val_7", "val_9"), True), (("onnx::MatMul_3", "val_12"), True), (("fc", "val_9"), False)],
)
def test_numbers_of_an_exporter_are_not_in_the_file(
    tmp_path: Path, names: tuple[str, str], *, is_shared: bool
) -> None:
    weight = TorchTensor(torch.randn(40, 30))
    for opset, name in zip((18, 19), names, strict=True):
        x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["n", 40]))
        value = ir.Value(name=name, type=ir.TensorType(weight.dtype), shape=weight.shape)
        value.const_value = weight
        node = ir.node("MatMul", [x, value])
        node.outputs[0].name = "weight_0"  # a name that is not free
        graph = ir.Graph(
            [x],
            node.outputs,
            nodes=[node],
            initializers=[value],
            opset_imports={"": opset},
            name="g",
        )
        path = write_artifact(ir.Model(graph, ir_version=10), SPEC, opset, JobFolder(tmp_path), {})
        (used,) = offsets(path)
        assert onnx.load(path).graph.node[0].input[1] == used
        assert [used] == (["fc"] if name == "fc" else ["weight_1"])
    assert (len(data(tmp_path)) == 1) is is_shared
