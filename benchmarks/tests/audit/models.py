"""A small file with one of each kind of part that mutators change: weights, attributes, shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper, parser

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
small (float[batch, 4] x) => (float[batch, 3] y, float[batch, 3] z)
<int64[1] last = {-1}, float[3] dead = {1, 2, 3}> {
  linear = Gemm <alpha = 1.0, transB = 1> (x, w, b)
  unused = Add (linear, dead)
  y = LeakyRelu <alpha = 0.1> (linear)
  sums = ReduceSum <keepdims = 1> (linear, last)
  z = Sub (linear, sums)
}
"""


def small() -> ModelProto:
    """Return a linear layer with one rectified and one centered output."""
    model = parser.parse_model(TEXT)
    rng = np.random.default_rng(0)
    for name, shape in (("w", (3, 4)), ("b", (3,))):
        array = rng.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def with_data_outside(folder: Path) -> ModelProto:
    """Return the same file with its weights in `weights.data`, as `read_model` does."""
    path = folder / "17.onnx"
    onnx.save(small(), path, save_as_external_data=True, location="weights.data", size_threshold=0)
    return onnx.load(path, load_external_data=False)
