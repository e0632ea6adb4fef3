from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import parser

from exporter.checks.structure_checks import check_opset
from exporter.records.record import Status
from tests.unit.checks.contexts import DOUBLE, contract, make_subject

WITH_FUNCTION = """<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
g (float[batch, 3] x) => (float[batch, 3] y) { y = own.twice(x) }
<domain: "own", opset_import: ["" : 18]>
twice (a) => (b) { b = Add(a, a) }
"""


def test_the_requested_opset_passes(tmp_path: Path) -> None:
    result = check_opset(make_subject(tmp_path))
    assert (result.check, result.status, result.message) == ("opset", Status.PASS, "")


def test_another_opset_fails_with_both_numbers(tmp_path: Path) -> None:
    result = check_opset(make_subject(tmp_path, opset=13))
    assert result.status is Status.FAIL
    assert result.message == "the file has opset 18, expected 13"


def test_the_long_name_of_the_default_domain_counts(tmp_path: Path) -> None:
    model = parser.parse_model(DOUBLE)
    model.opset_import[0].domain = "ai.onnx"
    assert check_opset(make_subject(tmp_path, model)).status is Status.PASS
    assert check_opset(make_subject(tmp_path, model, opset=17)).status is Status.FAIL


def test_two_versions_of_the_default_domain_fail(tmp_path: Path) -> None:
    model = parser.parse_model(DOUBLE)
    model.opset_import.add(domain="ai.onnx", version=13)
    result = check_opset(make_subject(tmp_path, model))
    assert result.message == "the file has opset 13 and 18, expected 18"


def test_no_default_domain_fails(tmp_path: Path) -> None:
    model = parser.parse_model(DOUBLE)
    model.opset_import[0].domain = "own"
    result = check_opset(make_subject(tmp_path, model))
    assert result.status is Status.FAIL
    assert "no opset of ONNX" in result.message


def test_other_domains_have_their_own_versions(tmp_path: Path) -> None:
    assert check_opset(make_subject(tmp_path, WITH_FUNCTION)).status is Status.PASS


def test_a_function_of_another_opset_fails(tmp_path: Path) -> None:
    text = WITH_FUNCTION.replace('opset_import: ["" : 18]>', 'opset_import: ["" : 17]>')
    result = check_opset(make_subject(tmp_path, text))
    assert result.message == "the function own::twice has opset 17, expected 18"


@pytest.mark.parametrize(
    ("cap", "status"), [(None, Status.PASS), (9, Status.PASS), (8, Status.PASS), (7, Status.FAIL)]
)
def test_ir_version_is_within_the_cap(cap: int | None, status: Status, tmp_path: Path) -> None:
    result = check_opset(make_subject(tmp_path, spec=contract(ir_version=cap)))
    assert result.status is status
    assert result.message == (
        "" if cap != 7 else "the file has IR version 8, the manifest allows up to 7"
    )


@pytest.mark.parametrize(
    ("floor", "opset", "ir_version", "fix"),
    [
        ("1.14", 18, 8, ""),
        ("1.18", 18, 10, ""),
        ("1.17", 18, 10, "1.18 on, but `consumers` promises 1.17; set ir_version = 9, or promise"),
        ("1.9", 13, 9, "promises 1.9; set ir_version = 8, or promise onnxruntime>=1.15"),
        ("1.12", 18, 8, "promises 1.12; 1.12 loads opset 17 at most; remove opset 18, or promise"),
        ("1.99", 29, 8, "in no known release, but `consumers` promises 1.99; 1.99 loads opset 28"),
    ],
)
def test_the_promised_release_loads_the_file(
    floor: str, opset: int, ir_version: int, fix: str, tmp_path: Path
) -> None:
    model = parser.parse_model(DOUBLE)
    model.opset_import[0].version, model.ir_version = opset, ir_version
    spec = contract(consumers=(f"onnxruntime>={floor}",))
    result = check_opset(make_subject(tmp_path, model, spec=spec, opset=opset))
    assert result.status is (Status.FAIL if fix else Status.PASS), result.message
    assert fix in result.message


def test_both_faults_are_reported(tmp_path: Path) -> None:
    result = check_opset(make_subject(tmp_path, spec=contract(ir_version=7), opset=9))
    assert "expected 9; the file has IR version 8" in result.message


@pytest.mark.parametrize("content", [b"", b"\x08\xff no model", b"PK\x03\x04" * 9])
def test_a_file_that_is_no_onnx_fails(content: bytes, tmp_path: Path) -> None:
    subject = make_subject(tmp_path)
    subject.path.write_bytes(content)
    result = check_opset(subject)
    assert result.status is Status.FAIL
    assert str(tmp_path) not in result.message


def test_a_missing_file_fails(tmp_path: Path) -> None:
    subject = make_subject(tmp_path)
    subject.path.unlink()
    result = check_opset(subject)
    assert result.status is Status.FAIL
    assert result.message == "18.onnx: cannot be read: No such file or directory"


def test_external_data_is_not_needed(tmp_path: Path) -> None:
    subject = make_subject(tmp_path)
    model = onnx.load(subject.path)
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="gone.data")
    subject.path.write_bytes(model.SerializeToString())
    assert check_opset(subject).status is Status.PASS


@pytest.mark.parametrize(("version", "status"), [(1, Status.PASS), (2, Status.FAIL)])
def test_a_custom_domain_has_the_requested_version(
    version: int, status: Status, tmp_path: Path
) -> None:
    spec = contract(options={"custom_opsets": {"own": version, "unused": 3}})
    result = check_opset(make_subject(tmp_path, WITH_FUNCTION, spec=spec))
    assert result.status is status
    if status is Status.FAIL:
        assert result.message == "the file has version 1 of own, expected 2"


def test_the_reason_of_the_version_converter_is_reported(tmp_path: Path) -> None:
    subject = replace(make_subject(tmp_path, opset=13), notes=("it cannot take Div down",))
    assert check_opset(subject).message == (
        "the file has opset 18, expected 13: it cannot take Div down"
    )
    right = replace(make_subject(tmp_path), notes=("it cannot take Div down",))
    assert check_opset(right).message == ""
