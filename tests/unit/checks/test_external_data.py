"""Weights are inside or outside the file, as the option `external_data` requires."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from exporter.checks.model_file import find_misplaced_weights


def model(size: int, *, outside: bool) -> ModelProto:
    tensor = numpy_helper.from_array(np.zeros(size, dtype=np.float32), "w")
    if outside:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
    return helper.make_model(helper.make_graph([], "g", [], [], [tensor]))


@pytest.mark.parametrize(
    ("size", "outside", "option", "message"),
    [
        (1000, True, None, ""),
        (1000, False, None, ""),
        (1000, True, True, ""),
        (1000, False, False, ""),
        (10, False, True, ""),
        (1000, True, False, "external_data = false, but 1 tensors are external: w"),
        (1000, False, True, "external_data = true, but 1 large tensors are inside the file"),
    ],
)
def test_misplaced_weights_are_reported(
    size: int, outside: bool, option: bool | None, message: str
) -> None:
    assert "".join(find_misplaced_weights(model(size, outside=outside), option)) == message
