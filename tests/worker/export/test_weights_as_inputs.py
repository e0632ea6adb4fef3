"""Files that take their weights as inputs, under both exporters."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from exporter.manifest import ModelSpec
from exporter.records.record import Record, Stage, Status
from tests.traps.prove import export, prove
from tests.worker.contracts import make_contract

CODE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(3) + 0.5)
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)  # its bias and its mean are equal: two weights all the same
        self.unused = nn.Linear(2, 2)
        self.linear = nn.Linear(4, 3)
        self.tied = nn.Linear(3, 3)
        self.twice = nn.Linear(3, 3)
        self.twice.weight = self.tied.weight

    def forward(self, x):
        y = self.norm(self.conv(x)).mean((2, 3)).unsqueeze(1)
        return self.twice(self.tied(self.linear(y) * self.scale + torch.tensor([1.0, 2.0, 3.0])))
"""

READ = [
    "scale", "conv.weight", "conv.bias", "norm.weight", "norm.bias", "norm.running_mean",
    "norm.running_var", "linear.weight", "linear.bias", "tied.weight", "tied.bias", "twice.bias",
]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "taking_code.py").write_text(CODE)
    return tmp_path


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a sound file that takes its weights."""
    root = tmp_path_factory.mktemp("taken")
    (root / "taking_code.py").write_text(CODE)
    folder = root / "build" / "net"
    (record,) = export(spec_of(13, export_params=False), folder, root=root)
    assert record.status is Status.PASS, record.message
    return folder


def spec_of(*opsets: int, **options: object) -> ModelSpec:
    return make_contract(
        "",
        "x [batch, 3, 8, 8] -> y [batch, 1, 3]",
        manifest="m.toml",
        source="taking_code.py:Net",
        opsets=opsets,
        options=options,
    )


def load(root: Path, opset: int) -> onnx.ModelProto:
    return onnx.load(root / "build" / "net" / f"{opset}.onnx")


def names(values: object) -> list[str]:
    return [item.name for item in values]


@pytest.mark.parametrize("opset", [13, 18])
def test_weights_are_inputs_in_order_of_state_dict(root: Path, opset: int) -> None:
    (record,) = export(spec_of(opset, export_params=False), root / "build" / "net", root=root)
    assert record.status is Status.PASS, record.message
    model = load(root, opset)
    read = list(READ)
    if opset == 18:  # of a tied weight, dynamo takes the last name, TorchScript the first
        read.remove("tied.weight")
        read.insert(read.index("twice.bias"), "twice.weight")
    assert names(model.graph.input) == ["x", *read]
    assert not set(names(model.graph.initializer)) & {*READ, "twice.weight"}


Edit = Callable[[onnx.ModelProto], object]


def give_value(model: onnx.ModelProto) -> None:
    value = numpy_helper.from_array(numpy_helper.np.zeros(3, "float32"), "linear.bias")
    model.graph.initializer.append(value)


def bake(model: onnx.ModelProto) -> None:
    """Replace the weight by a constant with another name."""
    remaining = [item for item in model.graph.input if item.name != "linear.bias"]
    del model.graph.input[:]
    model.graph.input.extend(remaining)
    value = helper.make_tensor("baked", TensorProto.FLOAT, [3], [0.0, 0.0, 0.0])
    model.graph.initializer.append(value)
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            if name == "linear.bias":
                node.input[index] = "baked"


def swap(first: int, second: int) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        values = list(model.graph.input)
        values[first], values[second] = values[second], values[first]
        del model.graph.input[:]
        model.graph.input.extend(values)

    return edit


def shrink(model: onnx.ModelProto) -> None:
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 4


def add(model: onnx.ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("extra", TensorProto.FLOAT, [1]))


def add_unused(model: onnx.ModelProto) -> None:
    value = helper.make_tensor_value_info("unused.bias", TensorProto.FLOAT, [2])
    model.graph.input.insert(8, value)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (give_value, "1 weight is stored in the file: linear.bias"),
        (bake, "1 weight is not an input of the file: linear.bias"),
        (swap(1, 2), "another order than in the state_dict: conv.weight, scale"),
        (swap(0, 1), "weights come before declared inputs"),
        (shrink, "the weight 'scale' is [4], expected [3]"),
        (add, "inputs differ: the file has 2 (x, extra), declared 1 (x)"),
        (add_unused, "the graph ignores the weight 'unused.bias'"),
    ],
)
def test_other_inputs_are_red(taken: Path, tmp_path: Path, edit: Edit, message: str) -> None:
    folder = Path(shutil.copytree(taken, tmp_path / "net"))
    record = prove_edited(spec_of(13, export_params=False), folder, edit)
    assert record.status is Status.FAIL
    (signature,) = (check for check in record.checks if check.check == "signature")
    assert message in signature.message


def export_and_edit(root: Path, spec: ModelSpec, edit: Edit) -> Record:
    folder = root / "build" / "net"
    (record,) = export(spec, folder, root=root)
    assert record.status is Status.PASS, record.message
    return prove_edited(spec, folder, edit)


def prove_edited(spec: ModelSpec, folder: Path, edit: Edit) -> Record:
    path = folder / f"{spec.opsets[0]}.onnx"
    model = onnx.load(path)
    edit(model)
    onnx.save(model, path)
    return prove(spec, folder)


def list_all(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        model.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )


def list_none(model: onnx.ModelProto) -> None:
    del model.graph.input[1:]


@pytest.mark.parametrize("opset", [13, 18])
def test_initializers_are_inputs_only_if_the_manifest_has_the_option(
    root: Path, opset: int
) -> None:
    record = export_and_edit(root, spec_of(opset), list_all)
    assert record.check == "signature"
    assert "initializers are listed as inputs" in record.message
    record = export_and_edit(root, spec_of(opset, keep_initializers_as_inputs=True), list_none)
    assert record.check == "signature"
    assert "the initializers are not listed as inputs" in record.message


def test_weights_larger_than_a_file_are_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.worker.export.write_onnx._LARGEST_FILE", 100)
    spec = spec_of(13, external_data=False)
    (record,) = export(spec, root / "build" / "net", root=root)
    assert (record.status, record.stage) == (Status.ERROR, Stage.CONVERT)
    assert "external_data = false: the model has 0.0 GB of weights, the limit of" in record.message
