"""The driver in JavaScript passes all values, and reports failures as the drivers in Python do."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from exporter.manifest import Device, RuntimeEnvironment
from exporter.runtimes import (
    LoadFailure,
    RunFailure,
    RuntimeProcessEnd,
    RuntimeUnavailable,
    Session,
    open_session,
)
from exporter.runtimes.drivers.driver import NUMPY_DTYPES

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")
#: A package with the interface of ONNX Runtime Web, which returns its inputs.
PACKAGE = """
class Tensor {
  constructor(type, data, dims) { Object.assign(this, { type, data, dims }); }
}
const REASON = "/a/s/helper.h:68 Status o::f(const Tensor *, int &) a->Shape() == 2 was false. "
  + "inconsistent lengths";
const KERNEL = "Could not find an implementation for Neg(13) node with name 'n'";
const create = async (bytes, options) => {
  const text = bytes.toString("latin1");
  if (text.includes("refused")) {
    throw new Error(`Can't create a session. ERROR_CODE: 9, ERROR_MESSAGE: ${KERNEL}`);
  }
  const external = options.externalData.map((each) => `${each.path}:${each.data.length}`);
  const type = text.includes("bits") ? "bfloat16" : "float32";
  return {
    inputMetadata: [{ name: "x", isTensor: true, type }],
    outputNames: ["y"],
    run: async (feeds) => {
      if (text.includes("trap")) throw new WebAssembly.RuntimeError("unreachable");
      if (text.includes("number")) throw 4096;
      if (text.includes("reason")) throw new Error(`E. ERROR_MESSAGE: ${REASON}`);
      console.log("a line on stdout");
      return { y: external.length ? new Tensor("string", external, [external.length]) : feeds.x };
    },
    release: async () => {},
  };
};
module.exports = { Tensor, InferenceSession: { create }, env: { wasm: {} } };
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one folder for all tests, which share its process."""
    folder = tmp_path_factory.mktemp("web")
    (folder / "bin").mkdir()
    (folder / "bin" / "node").symlink_to(NODE or "/nowhere")
    package = folder / "node_modules" / "onnxruntime-web"
    package.mkdir(parents=True)
    (package / "index.js").write_text(PACKAGE)
    return folder


def opened(environment: Path, name: str = "g", initializer: Any = None) -> Session:
    body = "" if initializer is None else "<float[2] w = {1, 2}>"
    text = f'<ir_version: 8, opset_import: ["" : 18]> {name} (float[n] x) => (float[n] y) {body} '
    model = parser.parse_model(text + "{ y = Neg(x) }")
    if initializer is not None:
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(initializer, "w"))
    path = environment / "18.onnx"
    is_external = initializer is not None
    onnx.save(model, path, save_as_external_data=is_external, location="w.data", size_threshold=0)
    settings = RuntimeEnvironment(
        name="web", requirements=("npm:x@1",), interpreter=str(environment / "bin" / "node")
    )
    return open_session(path, Device(name="web", runtime="web", environment=settings))


@needs_node
@pytest.mark.parametrize("dtype", sorted(NUMPY_DTYPES - {"complex64", "complex128"}))
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)])
def test_tensors_pass_unchanged(environment: Path, dtype: str, shape: tuple[int, ...]) -> None:
    value = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    (output,) = opened(environment).run({"x": value})
    assert isinstance(output, np.ndarray)
    assert (output.dtype, output.shape) == (value.dtype, value.shape)
    np.testing.assert_array_equal(output, value)


@needs_node
def test_strings_and_the_largest_integers_pass(environment: Path) -> None:
    session = opened(environment)
    text = np.array(["ä", ""], dtype=object)
    assert session.run({"x": text})[0].tolist() == ["ä", ""]  # type: ignore[union-attr]
    large = np.array([2**63 - 1, -(2**63)], dtype=np.int64)
    np.testing.assert_array_equal(session.run({"x": large})[0], large)  # type: ignore[arg-type]
    assert session.placement is not None
    assert session.placement.nodes == {"wasm": {}}


@needs_node
def test_external_data_is_passed_by_its_name(environment: Path) -> None:
    session = opened(environment, initializer=np.ones(300, np.float32))
    assert session.run({"x": np.ones(1, np.float32)})[0].tolist() == ["w.data:1200"]  # type: ignore[union-attr]


@needs_node
@pytest.mark.parametrize(
    ("name", "expected", "text"),
    [
        ("refused", LoadFailure, r"ONNX Runtime Web has no kernel for Neg \(as of opset 13"),
        ("bits", RuntimeUnavailable, "ONNX Runtime Web cannot receive bfloat16, the dtype of the"),
        ("trap", RuntimeProcessEnd, "the environment web ended with exit code 70 while it ran"),
        ("reason", RunFailure, r"^a->Shape\(\) == 2 was false. inconsistent lengths"),
        ("number", RunFailure, "exception 4096 in WebAssembly"),
    ],
)
def test_failures_have_the_kind_of_their_cause(
    environment: Path, name: str, expected: type[Exception], text: str
) -> None:
    with pytest.raises(expected, match=text):
        opened(environment, name).run({"x": np.ones(1, np.float32)})


@needs_node
def test_a_value_of_an_unknown_type_is_a_failure_of_the_run(environment: Path) -> None:
    bits = np.ones(1, helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16))
    session = opened(environment)
    with pytest.raises(RunFailure, match="cannot receive the input x: bfloat16"):
        session.run({"x": bits})
    assert session.run({"x": np.ones(1, np.int8)})[0].tolist() == [1]  # type: ignore[union-attr]


@needs_node
def test_a_missing_package_is_unavailable(environment: Path, tmp_path: Path) -> None:
    shutil.copytree(environment / "bin", tmp_path / "bin", symlinks=True)
    with pytest.raises(RuntimeUnavailable, match="onnxruntime-web cannot be imported: Cannot find"):
        opened(tmp_path)
