"""Weights with the names that the contract requires."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, parser

from exporter.checks.structure_checks import check_signature
from exporter.jobs import NamedWeight
from exporter.records.record import Status
from tests.unit.checks.contexts import DOUBLE, contract, make_reference, make_subject


def weight(**fields: Any) -> NamedWeight:
    values = np.array([2.0], np.float32)
    defaults: dict[str, Any] = {
        "name": "two",
        "source": "scale.weight",
        "dtype": "float32",
        "shape": (1,),
        "sha256": hashlib.sha256(values.tobytes()).hexdigest(),
    }
    return NamedWeight(**{**defaults, **fields})


def check(folder: Path, named: NamedWeight, model: onnx.ModelProto | str = DOUBLE) -> str:
    result = check_signature(
        make_subject(folder, model, reference=make_reference(weights=(named,)))
    )
    assert (result.status is Status.PASS) is not bool(result.message)
    return result.message


def test_a_weight_with_its_name_and_values_passes(tmp_path: Path) -> None:
    assert check(tmp_path, weight()) == ""


def test_another_name_shape_type_or_value_is_reported(tmp_path: Path) -> None:
    message = check(tmp_path, weight(name="learned_0"))
    assert message == "no weight has the name 'learned_0' (scale.weight): it has the name 'two'"
    message = check(tmp_path, weight(name="learned_0", sha256="0" * 64))
    assert "the exporter replaced it" in message
    message = check(tmp_path, weight(shape=(1, 1), dtype="float16"))
    assert message == (
        "the weight 'two' is not scale.weight: it is float32 [1], expected float16 [1, 1]"
    )
    message = check(tmp_path, weight(sha256="0" * 64))
    assert message == "the weight 'two' is not scale.weight: it has other values"


def test_a_weight_that_no_run_reads_may_be_missing_and_not_be_another(tmp_path: Path) -> None:
    assert check(tmp_path, weight(name="learned_0", is_read=False)) == ""
    message = check(tmp_path, weight(sha256="0" * 64, is_read=False))
    assert message == "the weight 'two' is not scale.weight: it has other values"


def test_external_weights_are_read(tmp_path: Path) -> None:
    model = parser.parse_model(DOUBLE)
    tensor = model.graph.initializer[0]
    content = np.array([2.0], np.float32).tobytes()
    (tmp_path / "w.data").write_bytes(content)
    tensor.ClearField("float_data")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.data"), ("offset", "0"), ("length", "4")):
        tensor.external_data.add(key=key, value=value)
    assert check(tmp_path, weight(), model) == ""
    (tmp_path / "w.data").unlink()
    assert "it has other values" in check(tmp_path, weight(), model)


def test_without_stored_weights_the_inputs_have_the_names(tmp_path: Path) -> None:
    text = DOUBLE.replace("x)", "x, float[1] two)").replace("<float[1] two = {2.0}> ", "")
    subject = make_subject(
        tmp_path,
        text,
        spec=contract(options={"export_params": False}),
        reference=make_reference(weights=(weight(), weight(name="other"))),
    )
    message = check_signature(subject).message
    assert "'two' (scale.weight)" not in message
    assert "no weight has the name 'other' (scale.weight)" in message
