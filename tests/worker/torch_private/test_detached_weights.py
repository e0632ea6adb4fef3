"""Detached weights of a TorchScript export are restored and change no file."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch

from exporter.jobs import JobFolder
from exporter.manifest import ModelSpec
from exporter.worker.export.convert import convert_module
from exporter.worker.export.write_onnx import write_artifact
from exporter.worker.model.source_loader import load_model
from exporter.worker.torch_private import guards
from exporter.worker.torch_private.export_speedups import is_plain_tensor
from tests.worker.contracts import declare_input, declare_output, make_contract
from tests.worker.graphs import draw_declared

CODE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.linear = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.linear.weight
        self.recurrent = nn.GRU(4, 5, batch_first=True)
        self.unused = nn.Linear(2, 2)
        self.register_buffer("narrow", torch.rand(4).half())
        self.register_buffer("counts", torch.arange(4))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        y = self.tied(self.linear(y)) * self.scale + self.narrow.to(x.dtype) + self.counts
        return self.recurrent(y.unsqueeze(1))[0]


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 5)

    def forward(self, x):
        for index in range(x.size(0)):
            if bool(x[index].sum() > 0):
                x = self.linear(x) + index
        return x
"""
NET = {"source": "aside_code.py:Net", "outputs": (declare_output("y", "batch", 1, 5),)}
NET |= {"inputs": (declare_input("x", "batch", 3, 8, 8),)}
LOOP = {"source": "aside_code.py:Loop", "outputs": (declare_output("y", "batch", 5),)}
LOOP |= {"inputs": (declare_input("x", "batch", 5),), "capture": "script"}


def write_file(spec: ModelSpec, root: Path, name: str) -> Path:
    model = load_model(spec, root)
    inputs = draw_declared(spec, root)
    folder = JobFolder(root / name)
    folder.path.mkdir()
    opset = spec.opsets[0]
    graph, _ = convert_module(model, spec, inputs, opset, root / ".scratch" / "a.onnx")
    return write_artifact(graph, spec, opset, folder, {})


@pytest.mark.parametrize("opset", [7, 9, 13, 17])
@pytest.mark.parametrize(
    "changes",
    [
        NET,
        NET | {"mode": "train"},
        NET
        | {
            "precision": "float16",
            "inputs": (declare_input("x", "batch", 3, 8, 8, dtype="float16"),),
        },
        NET | {"options": {"keep_initializers_as_inputs": True}},
        NET | {"options": {"do_constant_folding": False}},
        NET | {"options": {"export_params": False}},
        LOOP,
    ],
    ids=["net", "train", "float16", "listed", "unfolded", "fed", "script"],
)
def test_file_equals_file_of_torch(
    changes: dict[str, object], opset: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "aside_code.py").write_text(CODE)
    spec = make_contract("", manifest="m.toml", opsets=(opset,), **changes)
    if spec.capture == "script" and opset < 9:
        pytest.skip("it needs operators of opset 9")
    write_file(spec, tmp_path, "first")  # torch renames a compiled class after its first use
    ours = write_file(spec, tmp_path, "ours").read_bytes()
    monkeypatch.setattr(guards, "_TESTED", dict.fromkeys(guards._TESTED, ()))
    assert write_file(spec, tmp_path, "torch's").read_bytes() == ours
    assert onnx.load_from_string(ours).graph.initializer


def test_weights_are_in_no_message_of_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "aside_code.py").write_text(CODE)
    spec = make_contract("", manifest="m.toml", opsets=(13,), **NET)
    export, sizes = torch.Graph._export_onnx, []

    def count_weights(
        graph: torch.Graph, weights: dict[str, torch.Tensor], *rest: object
    ) -> object:
        sizes.append(len(weights))
        return export(graph, weights, *rest)

    monkeypatch.setattr(torch.Graph, "_export_onnx", count_weights)
    write_file(spec, tmp_path, "ours")
    monkeypatch.setattr(guards, "_TESTED", dict.fromkeys(guards._TESTED, ()))
    write_file(spec, tmp_path, "torch's")
    assert sizes[0] == 0
    assert sizes[1] > 0


def test_only_plain_tensors_are_detached() -> None:
    assert is_plain_tensor(torch.ones(2, dtype=torch.bfloat16))
    assert not is_plain_tensor(torch.ones(2, dtype=torch.complex64))
    assert not is_plain_tensor(torch.ones(2).to_sparse())
    assert not is_plain_tensor(torch.ones(2, device="meta"))
