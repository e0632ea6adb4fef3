"""The IR version that the content of a file needs, independent of the declared one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import ModelProto, TensorProto, helper, parser

from exporter.checks.structure_checks import check_opset, find_minimum_ir_version
from exporter.records.record import Status
from tests.unit.checks.contexts import DOUBLE, contract, make_subject


def _listed(model: ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("two", TensorProto.FLOAT, [1]))


def _int4(model: ModelProto) -> None:
    model.graph.initializer.append(helper.make_tensor("four", TensorProto.INT4, [2], [1, 2]))


def _function(model: ModelProto) -> None:
    nodes = [helper.make_node("Relu", ["a"], ["b"])]
    imports = [helper.make_opsetid("", 18)]
    model.functions.append(helper.make_function("own", "f", ["a"], ["b"], nodes, imports))


def _optional(model: ModelProto) -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [1]))
    model.graph.value_info.append(helper.make_value_info("maybe", kind))


def _quantized(model: ModelProto) -> None:
    model.graph.quantization_annotation.add(tensor_name="two")


@pytest.mark.parametrize(
    ("change", "needed", "what"),
    [
        (_listed, 3, ""),
        (lambda model: None, 4, "initializers that are not listed as inputs"),
        (_quantized, 5, "quantization annotations"),
        (_function, 8, "model-local functions"),
        (_optional, 8, "optional or sparse values"),
        (_int4, 10, "values of the type int4"),
    ],
)
def test_the_content_of_the_file_determines_its_ir_version(
    change: Callable[[ModelProto], None], needed: int, what: str, tmp_path: Path
) -> None:
    model = parser.parse_model(DOUBLE)
    change(model)
    assert find_minimum_ir_version(model) == (needed, what)
    model.ir_version = needed
    assert check_opset(make_subject(tmp_path, model)).status is Status.PASS
    if needed > 3:
        model.ir_version = needed - 1
        result = check_opset(make_subject(tmp_path, model, spec=contract(ir_version=needed - 1)))
        assert result.status is Status.FAIL
        message = f"the file declares IR version {needed - 1}, but {what} need {needed}"
        assert result.message == message
