"""An ONNX file is a model: it runs by the names of the entry, in float64 and in other orders."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from onnx import parser

from exporter.manifest import Input, ModelSpec, Output
from exporter.worker.model.onnx_model import compute_in_other_order, load_file
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import build_float64_model, run_in_float64, run_model
from tests.unit.factory import make_spec

NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[b, 2] x, float[b, 2] y) => (float[b, 2] d, float[b, 2] s)
<float[2] w = {0.1, 0.2}> { m = Mul(x, w) d = Sub(m, y) s = Add(m, y) }"""


def make_contract(inputs: str = "yx", outputs: str = "sd") -> ModelSpec:
    """Return an entry whose order differs from that of the file."""
    return make_spec(
        "net",
        source="net.onnx",
        inputs=tuple(
            Input(name=name, shape=("b", 2), at=f"args[{index}]")
            for index, name in enumerate(inputs)
        ),
        outputs=tuple(Output(name=name, shape=("b", 2)) for name in outputs),
    )


def write(folder: Path) -> Path:
    onnx.save(parser.parse_model(NET), folder / "net.onnx")
    return folder / "net.onnx"


def test_values_are_assigned_by_their_names(tmp_path: Path) -> None:
    spec = make_contract()
    model = load_file(write(tmp_path), spec)
    x, y = torch.randn(3, 2), torch.randn(3, 2)
    expected = x * torch.tensor([0.1, 0.2])
    inputs = {"x": x, "y": y}
    outputs = run_model(model, spec, inputs)
    torch.testing.assert_close(outputs, (expected + y, expected - y))
    wide, reason = build_float64_model(model)
    exact = run_in_float64(wide, spec, inputs)
    assert exact is not None, reason
    assert [getattr(each, "dtype", None) for each in exact] == [torch.float64] * 2
    with compute_in_other_order(1):
        torch.testing.assert_close(run_model(model, spec, inputs), outputs)
    assert [name for name, _ in model.named_parameters()] == ["w"]


def test_an_output_may_be_left_out(tmp_path: Path) -> None:
    spec = make_contract(outputs="d")
    inputs = {"x": torch.ones(1, 2), "y": torch.ones(1, 2)}
    assert len(run_model(load_file(write(tmp_path), spec), spec, inputs)) == 1


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ("x", "ds", "net.onnx has the inputs x, y, and the entry declares x; correct y"),
        ("xyz", "ds", "net.onnx has the inputs x, y, and the entry declares x, y, z; correct z"),
        ("xy", "e", "net.onnx has the outputs d, s, and the entry declares e; correct e"),
    ],
)
def test_other_names_are_a_failure(inputs: str, outputs: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(Failure, match=message):
        load_file(write(tmp_path), make_contract(inputs, outputs))


def test_a_file_that_cannot_be_read_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_text("no ONNX file")
    with pytest.raises(Failure, match=r"net\.onnx: is not an ONNX file, cannot be parsed; restore"):
        load_file(tmp_path / "net.onnx", make_contract())
