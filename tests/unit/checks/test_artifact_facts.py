from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from onnx import TensorProto, helper, parser

from exporter.checks.model_file import UnreadableModel, measure_artifact
from tests.unit.checks.contexts import DOUBLE, make_subject

NESTED = """<ir_version: 9, opset_import: ["" : 18, "own" : 2]>
g (bool c, float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}> {
  z = own.twice(x)
  y = If(c) <
    then_branch = t () => (float[2] a) <float[3] v = {1.0, 2.0, 3.0}> { a = Relu(z) },
    else_branch = e () => (float[2] b) { d = Neg(z) b = Relu(d) }>
}
<domain: "own", opset_import: ["" : 18]> twice (p) => (q) { q = Add(p, p) }
"""


def test_a_plain_file(tmp_path: Path) -> None:
    path = make_subject(tmp_path).path
    facts = measure_artifact(path, "double")
    assert facts.file == "double/18.onnx"
    assert facts.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert facts.bytes == path.stat().st_size
    assert facts.external_data == ()
    assert facts.ir_version == 8
    assert facts.opset_imports == {"": 18}
    assert (facts.nodes, facts.parameters, facts.operators) == (1, 1, {"Mul": 1})


def test_subgraphs_and_functions_count(tmp_path: Path) -> None:
    facts = measure_artifact(make_subject(tmp_path, NESTED).path, "nested")
    assert facts.operators == {"Add": 1, "If": 1, "Neg": 1, "Relu": 2, "own::twice": 1}
    assert facts.nodes == 6
    assert facts.parameters == 5
    assert facts.opset_imports == {"": 18, "own": 2}


def test_external_data_counts_once_and_is_not_loaded(tmp_path: Path) -> None:
    model = parser.parse_model(DOUBLE)
    for name, offset in (("v", 0), ("w", 400)):
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[100])
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="w.data")
        tensor.external_data.add(key="offset", value=str(offset))
        model.graph.initializer.append(tensor)
    subject = make_subject(tmp_path)
    subject.path.write_bytes(model.SerializeToString())
    missing = measure_artifact(subject.path, "double")
    (tmp_path / "w.data").write_bytes(bytes(800))
    facts = measure_artifact(subject.path, "double")
    assert facts.external_data == ("w.data",)
    assert facts.parameters == 201
    assert facts.bytes == missing.bytes + 800


def test_sparse_weights_count_stored_values(tmp_path: Path) -> None:
    model = parser.parse_model(DOUBLE)
    values = helper.make_tensor("s", TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = helper.make_tensor("i", TensorProto.INT64, [2], [0, 7])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [10]))
    assert measure_artifact(make_subject(tmp_path, model).path, "double").parameters == 3


def test_a_file_that_is_no_onnx_raises(tmp_path: Path) -> None:
    path = tmp_path / "18.onnx"
    with pytest.raises(UnreadableModel, match=r"^18.onnx: cannot be read"):
        measure_artifact(path, "double")
    path.write_bytes(b"no model")
    with pytest.raises(UnreadableModel, match=r"^18.onnx: is not an ONNX file"):
        measure_artifact(path, "double")
