"""Nodes that compute shapes are told apart from those that cost copies between devices."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import parser

from exporter.manifest import Device
from exporter.runtimes import Placement, open_session, runtime_registry
from exporter.runtimes.drivers import onnxruntime_driver
from exporter.runtimes.node_transfers import Transfers, count_transfers

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
#: As ONNX Runtime runs it: `Concat` and `Gather` compute a shape, `DFT` has no kernel.
SIGNAL = """ g (float[n, 1] x) => (float[n, m] y) <int64[1] all = {-1}, int64 zero = {0}> {
  [shape] s = Shape (x)
  [gather] first = Gather (s, zero)
  [unsqueeze] f = Unsqueeze (first, all)
  [concat] target = Concat <axis = 0> (f, all)
  [relu] r = Relu (x)
  [to] h = MemcpyToHost (r)
  [dft] d = DFT (h, zero)
  [from] b = MemcpyFromHost (d)
  [reshape] y = Reshape (b, target)
}"""
CPU = "CPUExecutionProvider"


def read(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + text)


def test_shapes_and_copies_are_counted() -> None:
    names = ["gather", "unsqueeze", "concat", "dft"]
    shapes = {"Gather": 1, "Unsqueeze": 1, "Concat": 1}
    counted = count_transfers(read(SIGNAL), names)
    assert (counted.copies, {k: v for k, v in counted.shapes.items() if v}) == (2, shapes)


@pytest.mark.parametrize(
    "body",
    [
        "[cut] y = Slice (x, x, x)",  # the values of an input are no shape
        "y = Shape (x)",  # without a name, it may be another node
    ],
)
def test_other_nodes_compute_no_shapes(body: str) -> None:
    model = read(f" g (int64[n] x) => (int64[k] y) {{ {body} }}")
    assert not any(count_transfers(model, ["cut", ""]).shapes.values())


def test_a_branch_uses_the_shapes_around_it() -> None:
    model = read(
        """ g (float[n] x, bool c) => (int64[1] y) {
  s = Shape (x)
  y = If (c) <
    then_branch = a () => (int64[1] p) { [inner] p = Add (s, s) },
    else_branch = b () => (int64[1] q) { t = Cast <to = 7> (x)  [other] q = Slice (t, s, s) }
  >
}"""
    )
    counted = count_transfers(model, ["inner", "other"])
    assert {name for name, count in counted.shapes.items() if count} == {"Add"}


def test_the_runtime_shows_the_file_that_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "18.onnx"
    text = " g (float[n, m] x) => (float[m, n] y) { [s] s = Shape (x) [g] y = Reshape (x, s) }"
    onnx.save(read(text), path)
    seen = []

    def place(driver: onnxruntime_driver.OnnxRuntimeDriver) -> Placement:
        nodes = {"CUDA": {"Reshape": 1}, CPU: {"Shape": 1}}
        return Placement("CUDA", nodes, others=["s"])

    def count(model: onnx.ModelProto, names: list[str]) -> Transfers:
        seen.append({node.name for node in model.graph.node} >= {*names})
        return count_transfers(model, names)

    monkeypatch.setattr(onnxruntime_driver.OnnxRuntimeDriver, "find_placement", place)
    monkeypatch.setattr(runtime_registry, "count_transfers", count)
    placement = open_session(path, Device(name="x", runtime="onnxruntime")).placement
    assert placement is not None
    assert (seen, placement.copies, placement.shapes) == ([True], 0, {"Shape": 1})
