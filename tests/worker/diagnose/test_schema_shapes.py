"""The shapes that ONNX documents for the inputs of a node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, parser

from exporter.manifest import Device
from exporter.runtimes import Session, open_session
from exporter.worker.diagnose.runtime_values import find_violation, find_violation_in_file

OPSET = 23
REFERENCE = Device(name="reference", runtime="reference")
ROTARY = """<ir_version: 10, opset_import: ["" : 23]>
agraph (float[b, 2, 5, 8] x, float[c, 5, 4] cache) => (float[b, 2, 5, 8] y) {
  cos = Cos(cache)
  sin = Sin(cache)
  y = RotaryEmbedding(x, cos, sin)
}"""


def open_reference(path: Path) -> Session:
    return open_session(path, REFERENCE)


@pytest.mark.parametrize(
    ("operator", "shapes", "problem"),
    [
        (
            "RotaryEmbedding",
            [(3, 2, 5, 8), (1, 5, 4), (1, 5, 4)],
            (
                "RotaryEmbedding: ONNX documents `cos_cache` as (batch_size, sequence_length, "
                "head_size / 2), and batch_size is 3 in `X`; the file has [1, 5, 4]"
            ),
        ),
        ("RotaryEmbedding", [(3, 2, 5, 8), (3, 5, 4), (3, 5, 4)], ""),
        ("RotaryEmbedding", [(3, 5, 16), (3, 5, 4), (3, 5, 4)], ""),
        ("RotaryEmbedding", [(3, 2, 5, 8), (64, 4), (64, 4), (3, 5)], ""),
        ("Attention", [(3, 4, 5, 8), (3, 2, 7, 8), (3, 2, 7, 6), (5, 7)], ""),
        (
            "Attention",
            [(3, 4, 5, 8), (1, 4, 7, 8), (3, 4, 7, 8)],
            (
                "Attention: ONNX documents `K` as (batch_size, kv_num_heads, kv_sequence_length, "
                "head_size), and batch_size is 3 in `Q`; the file has [1, 4, 7, 8]"
            ),
        ),
        ("Gemm", [(3, 4), (4, 5), (5,)], ""),
        ("Gemm", [(4, 3), (5, 4), (3, 5)], ""),
        ("LSTM", [(7, 3, 4), (1, 20, 4), (1, 20, 5), (1, 40)], ""),
        ("Add", [(3, 1), (1, 4)], ""),
        ("Unknown", [(3, 1)], ""),
    ],
)
def test_documented_shapes_are_compared(
    operator: str, shapes: list[tuple[int, ...]], problem: str
) -> None:
    names = [f"v{index}" for index in range(len(shapes))]
    node = helper.make_node(operator, names, ["y"])
    assert find_violation(node, OPSET, dict(zip(names, shapes, strict=True))) == problem


def test_an_absent_input_and_a_list_have_no_shape() -> None:
    node = helper.make_node("RotaryEmbedding", ["x", "c", "s", ""], ["y"])
    assert find_violation(node, OPSET, {"x": (3, 2, 5, 8), "c": None}) == ""


@pytest.mark.parametrize(("batch", "is_violated"), [(1, True), (3, False)])
def test_the_shapes_of_a_file_are_computed(
    batch: int, *, is_violated: bool, tmp_path: Path
) -> None:
    path = tmp_path / "rotary.onnx"
    onnx.save(parser.parse_model(ROTARY), path)
    inputs = {
        "x": np.zeros((3, 2, 5, 8), np.float32),
        "cache": np.zeros((batch, 5, 4), np.float32),
    }
    problem = find_violation_in_file(path, "y", OPSET, inputs, open_reference)
    assert bool(problem) is is_violated
    assert find_violation_in_file(path, "cos", OPSET, inputs, open_reference) == ""
