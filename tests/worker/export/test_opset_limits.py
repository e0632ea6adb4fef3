"""The opsets of the manifest match the exporters and the releases of ONNX Runtime."""

from __future__ import annotations

import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from torch.onnx import _constants
from torch.onnx._internal.exporter import _constants as dynamo

from exporter.core.known_names import RELEASES, ReleaseLimits, find_first_release
from exporter.manifest.syntax.versions import (
    FIRST_OPSET,
    LAST_OPSET,
    NATIVE_OPSETS,
    REQUESTABLE_OPSETS,
)
from exporter.planning.plan import FIRST_DYNAMO_OPSET


def test_torchscript_opsets_match_torch() -> None:
    limits = (_constants.ONNX_MIN_OPSET, _constants.ONNX_TORCHSCRIPT_EXPORTER_MAX_OPSET)
    assert NATIVE_OPSETS["torchscript"] == limits == REQUESTABLE_OPSETS["torchscript"]


def test_dynamo_opsets_start_with_its_translations() -> None:
    assert NATIVE_OPSETS["dynamo"][0] == dynamo.TORCHLIB_OPSET == FIRST_DYNAMO_OPSET
    assert REQUESTABLE_OPSETS["dynamo"] == (FIRST_OPSET, LAST_OPSET)


def test_last_opset_is_supported_by_onnx_and_a_release() -> None:
    assert onnx.defs.onnx_opset_version() >= LAST_OPSET
    assert NATIVE_OPSETS["dynamo"][1] == LAST_OPSET <= RELEASES[-1].opset


def _loads(opset: int, ir_version: int) -> bool:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [value("x", TensorProto.FLOAT, [2])],
        [value("y", TensorProto.FLOAT, [2])],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options)
    except Fail:
        return False
    return True


def _find_installed() -> ReleaseLimits:
    major, minor = map(int, onnxruntime.__version__.split(".")[:2])
    return [each for each in RELEASES if each.release <= (major, minor)][-1]


def test_table_matches_installed_release() -> None:
    known = _find_installed()
    assert _loads(known.opset, 3)
    assert _loads(9, known.ir_version)
    assert find_first_release(known.opset, known.ir_version) == known.release
    if known is RELEASES[-1]:
        # If a newer release loads more, the table needs another row.
        assert not _loads(known.opset + 1, 3)
        assert not _loads(9, known.ir_version + 1)


@pytest.mark.parametrize("opset", [FIRST_OPSET, LAST_OPSET])
def test_first_and_last_opset_load(opset: int) -> None:
    if opset > _find_installed().opset:
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} is too old")
    assert _loads(opset, 3)
