"""Weights of one initial number get other values in a copy of the file and in the model."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from onnx import numpy_helper, parser
from torch import nn

from exporter.worker.constant_weights import find_constant_weights


class Net(nn.Module):
    """Has two equal vectors, a matrix of zeros, and a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros(3))
        self.b = nn.Parameter(torch.zeros(3))
        self.m = nn.Parameter(torch.zeros(3, 2))
        self.s = nn.Parameter(torch.zeros(()))


NODES = "b = Identity(a) c = MatMul(val_1, x) d = Add(x, s)"
NAMES = ("a", "b", "m", "s")


def write(folder: Path, initializers: str, nodes: str = "") -> Path:
    path = folder / "18.onnx"
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[3] x) => (float[3] y) '
    onnx.save(parser.parse_model(f"{text}<{initializers}> {{ {nodes} y = Add(x, a) }}"), path)
    return path


def read(path: Path) -> dict[str, object]:
    return {each.name: numpy_helper.to_array(each) for each in onnx.load(path).graph.initializer}


def test_the_copy_and_the_model_have_the_same_other_values(tmp_path: Path) -> None:
    # An exporter stores equal vectors once, and a matrix transposed under a name of its own.
    text = "float[3] a = {0, 0, 0}, float[2, 3] val_1 = {0, 0, 0, 0, 0, 0}, float s = {0}"
    path, model = (
        write(tmp_path, f"{text}, float zero = {{0}}, float[3] w = {{1, 0, 0}}", NODES),
        Net(),
    )
    found = find_constant_weights(model, NAMES, path)
    assert (sorted(found.weights), found.unproved) == (sorted(NAMES), ())
    content = path.read_bytes()
    found.write_copy(path, tmp_path / "copy.onnx")
    values = read(tmp_path / "copy.onnx")
    with found.change_model():
        assert torch.equal(model.a, model.b)
        assert model.a.unique().numel() == 3
        for name, weight in (("a", model.a), ("val_1", model.m.T), ("s", model.s)):
            assert torch.equal(torch.tensor(values[name]), weight.detach())
    assert all(not weight.any() for weight in model.parameters())
    assert path.read_bytes() == content
    assert values["zero"] == 0  # a number of the exporter
    assert torch.equal(torch.tensor(values["w"]), torch.tensor([1.0, 0, 0]))


def test_weights_without_a_place_of_their_own_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "float[3] a = {0, 0, 0}, float zero = {0}", "b = Identity(a)")
    model, names = Net(), ("a", "b", "s")
    model.m.data.fill_(2.0)
    places = find_constant_weights(model, names, path)
    assert (sorted(places.weights), places.unproved) == (["a", "b"], ("s: all values are 0",))
    model.register_buffer("zeros", torch.zeros(3))  # it may be the vector of the file
    assert not find_constant_weights(model, names, path).weights


def test_a_weight_that_may_be_cut_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "float[3] a = {0, 0, 0}", "b = Identity(a)")
    assert not find_constant_weights(Net(), ("a", "b", "m"), path).weights


def test_a_weight_that_an_optimizer_removed_is_not_changed(tmp_path: Path) -> None:
    # One of two equal biases is added to nothing.
    path = write(tmp_path, "float[3] a = {0, 0, 0}")
    assert not find_constant_weights(Net(), ("a", "b"), path).weights


@pytest.mark.parametrize(("operator", "is_kept"), [("Add", False), ("BatchNormalization", True)])
def test_a_folded_norm_is_not_changed(tmp_path: Path, operator: str, is_kept: bool) -> None:
    norm, names = nn.BatchNorm1d(3).eval(), ("bias", "running_mean")
    path = write(tmp_path, "float[3] bias = {0, 0, 0}", "c = Add(x, bias) d = Add(x, bias)")
    proto = onnx.load(path)
    proto.graph.node[-1].op_type = operator
    onnx.save(proto, path)
    assert bool(find_constant_weights(norm, names, path).weights) is is_kept
