"""Checks of the structure: opset, IR version, domains, names of weights, external data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser
from onnx.reference.op_run import OpRun

from exporter.checks.model_file import UnreadableModel, find_misplaced_weights, measure_artifact
from exporter.checks.protocol import StructureCheck
from exporter.checks.structure_checks import (
    check_labels,
    check_metadata,
    check_opset,
    check_signature,
    explain_missing_kernel,
    find_foreign_operators,
    find_minimum_ir_version,
)
from exporter.jobs import NamedWeight
from exporter.manifest import CustomOp, Device
from exporter.records.record import Status
from exporter.runtimes import Kernels
from exporter.worker.verify import run_checks
from tests.unit.checks.contexts import DOUBLE, Y, contract, make_reference, make_subject, write

WITH_FUNCTION = """<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
g (float[batch, 3] x) => (float[batch, 3] y) { y = own.twice(x) }
<domain: "own", opset_import: ["" : 18]>
twice (a) => (b) { b = Add(a, a) }
"""


def change_import(*versions: int, **domains: int) -> ModelProto:
    """Return the model with these versions of the default domain, by its long name, and others."""
    model = parser.parse_model(DOUBLE)
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid("ai.onnx", version) for version in versions)
    model.opset_import.extend(helper.make_opsetid(*each) for each in domains.items())
    return model


OLD_FUNCTION = WITH_FUNCTION.replace('opset_import: ["" : 18]>', 'opset_import: ["" : 17]>')


@pytest.mark.parametrize(
    ("model", "opset", "message"),
    [
        (DOUBLE, 18, ""),
        (DOUBLE, 13, "the file has opset 18, expected 13"),
        (change_import(18), 18, ""),
        (change_import(18), 17, "the file has opset 18, expected 17"),
        (change_import(13, 18), 18, "the file has opset 13 and 18, expected 18"),
        (change_import(own=18), 18, "no opset of ONNX"),
        (WITH_FUNCTION, 18, ""),
        (OLD_FUNCTION, 18, "the function own::twice has opset 17, expected 18"),
    ],
)
def test_the_file_has_the_requested_opset(
    model: ModelProto | str, opset: int, message: str, tmp_path: Path
) -> None:
    result = check_opset(make_subject(tmp_path, model, opset=opset))
    assert (result.check, result.status is Status.FAIL) == ("opset", bool(message))
    assert message in result.message
    assert bool(result.message) is bool(message)


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file imports no opset of ONNX"),
        (b"\x08\xff no model", "18.onnx: is not an ONNX file"),
        (b"PK\x03\x04" * 9, "18.onnx: is not an ONNX file"),
        (None, "18.onnx: cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_is_no_onnx_fails(content: bytes | None, message: str, tmp_path: Path) -> None:
    """Each check of the structure reads the file in the same way."""
    subject = make_subject(tmp_path)
    subject.path.unlink() if content is None else subject.path.write_bytes(content)
    result = check_opset(subject)
    assert result.status is Status.FAIL
    assert result.message.startswith(message)


def test_external_data_is_not_needed(tmp_path: Path) -> None:
    subject = make_subject(tmp_path)
    model = onnx.load(subject.path)
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="gone.data")
    subject.path.write_bytes(model.SerializeToString())
    assert check_opset(subject).status is Status.PASS


def test_the_reason_of_the_version_converter_is_reported(tmp_path: Path) -> None:
    subject = replace(make_subject(tmp_path, opset=13), notes=("it cannot take Div down",))
    assert check_opset(subject).message == (
        "the file has opset 18, expected 13: it cannot take Div down"
    )
    right = replace(make_subject(tmp_path), notes=("it cannot take Div down",))
    assert check_opset(right).message == ""


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
        (_listed, 3, "opset imports"),
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


OWN_DOMAIN = """<ir_version: 8, opset_import: ["" : 18, "own" : 3]>
g (float[batch, 3] x) => (float[batch, 3] y) { h = own.Foo(x) y = own.Bar(h) }
"""
IN_A_FUNCTION = """<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
g (float[batch, 3] x) => (float[batch, 3] y) { y = own.twice(x) }
<domain: "own", opset_import: ["" : 18, "other" : 1]>
twice (a) => (b) { b = other.Foo(a) }
"""
IN_A_BRANCH = """<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
g (float[batch, 3] x, bool c) => (float[batch, 3] y) {
  y = If(c) <then_branch = t () => (a) { a = own.Foo(x) },
            else_branch = e () => (b) { b = Relu(x) }>
}
"""
MACHINE_LEARNING = """<ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : 3]>
g (float[batch, 3] x) => (float[batch, 3] y) { y = ai.onnx.ml.Scaler(x) }
"""


class Foo(OpRun):
    op_domain = "own"


def device(runtime: str) -> Device:
    return Device.model_validate({"name": "here", "runtime": runtime})


@pytest.mark.parametrize(
    ("text", "operators"),
    [
        (OWN_DOMAIN, {"own": ("Bar", "Foo")}),
        (IN_A_FUNCTION, {"other": ("Foo",)}),
        (IN_A_BRANCH, {"own": ("Foo",)}),
        (MACHINE_LEARNING, {}),
    ],
)
def test_foreign_operators_are_found_in_functions_and_branches(
    text: str, operators: dict[str, tuple[str, ...]]
) -> None:
    assert find_foreign_operators(parser.parse_model(text)) == operators


def test_a_domain_that_the_manifest_does_not_name_fails(tmp_path: Path) -> None:
    result = check_opset(make_subject(tmp_path, OWN_DOMAIN))
    assert result.status is Status.FAIL
    assert result.message == (
        "the file uses the domain 'own' (Bar, Foo), which the manifest does not name; "
        "add options.custom_opsets = { own = 3 }"
    )
    text = IN_A_FUNCTION.replace("own.twice(x)", "own.thrice(x)").replace("other.Foo", "Relu")
    assert "the domain 'own' (thrice)" in check_opset(make_subject(tmp_path, text)).message


WRONG_VERSION = "the file has version 1 of own, expected 2"


@pytest.mark.parametrize(
    ("model", "named", "message"),
    [
        (OWN_DOMAIN, {"options": {"custom_opsets": {"own": 3}}}, ""),
        (OWN_DOMAIN, {"options": {"custom_opsets": {"own": 1}}}, "expected 1"),
        (OWN_DOMAIN, {"options": {"custom_opsets": {"other": 1}}}, "does not name"),
        (OWN_DOMAIN, {"custom_ops": (CustomOp(name="own::Foo", reference="x.py:Foo"),)}, ""),
        # An operator of PyTorch does not name a domain of the file.
        (
            OWN_DOMAIN,
            {"custom_ops": (CustomOp(name="own::foo", symbolic="x.py:foo"),)},
            "does not name",
        ),
        (WITH_FUNCTION, {"options": {"custom_opsets": {"own": 1, "unused": 3}}}, ""),
        (WITH_FUNCTION, {"options": {"custom_opsets": {"own": 2, "unused": 3}}}, WRONG_VERSION),
    ],
)
def test_the_manifest_names_a_domain_by_operator_or_opset(
    model: str, named: dict[str, object], message: str, tmp_path: Path
) -> None:
    result = check_opset(make_subject(tmp_path, model, spec=contract(**named)))
    assert (result.status is Status.FAIL) is bool(message)
    assert message in result.message


@pytest.mark.parametrize(
    ("runtime", "kernels", "fix"),
    [
        ("onnxruntime", Kernels(), "add a kernel as `ort_library` in custom_ops"),
        ("reference", Kernels(), "add a kernel as `reference` in custom_ops"),
        ("openvino", Kernels(), "this runtime accepts no kernels from custom_ops"),
        ("onnxruntime", Kernels(operators=(Foo,)), "add a kernel as `ort_library` in custom_ops"),
        # Kernels for other operators count as kernels.
        ("onnxruntime", Kernels(libraries=(Path("libfoo.so"),)), ""),
        ("reference", Kernels(operators=(Foo,)), ""),
    ],
)
def test_an_operator_without_a_kernel_is_reported_with_a_fix(
    runtime: str, kernels: Kernels, fix: str, tmp_path: Path
) -> None:
    subject = replace(make_subject(tmp_path, OWN_DOMAIN), kernels=kernels)
    lacking = f"here has no kernel for own::Bar, own::Foo; {fix}" if fix else ""
    assert explain_missing_kernel(subject, device(runtime)) == lacking


def test_contributed_operators_of_onnxruntime_have_kernels(tmp_path: Path) -> None:
    subject = make_subject(tmp_path, OWN_DOMAIN.replace("own", "com.microsoft"))
    assert explain_missing_kernel(subject, device("onnxruntime")) == ""
    assert "com.microsoft::Foo" in explain_missing_kernel(subject, device("reference"))


def test_an_unreadable_file_has_no_missing_kernel(tmp_path: Path) -> None:
    subject = make_subject(tmp_path)
    subject.path.write_bytes(b"\xff")
    assert explain_missing_kernel(subject, device("onnxruntime")) == ""


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


OTHER_VALUES = "the weight 'two' is not scale.weight: it has other values"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, ""),
        (
            {"name": "learned_0"},
            "no weight has the name 'learned_0' (scale.weight): it has the name 'two'",
        ),
        ({"name": "learned_0", "sha256": "0" * 64}, "the exporter replaced it"),
        (
            {"shape": (1, 1), "dtype": "float16"},
            "the weight 'two' is not scale.weight: it is float32 [1], expected float16 [1, 1]",
        ),
        ({"sha256": "0" * 64}, OTHER_VALUES),
        # A weight that no run reads may be missing and not be another.
        ({"name": "learned_0", "is_read": False}, ""),
        ({"sha256": "0" * 64, "is_read": False}, OTHER_VALUES),
    ],
)
def test_another_weight_is_reported(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    found = check(tmp_path, weight(**fields))
    assert message in found
    assert bool(found) is bool(message)


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


@pytest.mark.parametrize(("applies", "count"), [(True, 1), (False, 0)])
def test_a_check_without_its_promise_has_no_result(
    applies: bool, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = StructureCheck("size", lambda *_: ["too large"], applies=lambda _: applies)
    monkeypatch.setattr(run_checks, "STRUCTURE_CHECKS", (check,))
    results = run_checks.run_structure_checks(make_subject(tmp_path))
    assert [(each.check, each.status) for each in results] == [("size", Status.FAIL)] * count


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["16000"], ""),
        ([], "the file has no metadata 'rate', declared '16000'"),
        (["8000"], "the metadata 'rate' is 8000, declared '16000'"),
        (["16000", "8000"], "the metadata 'rate' is 16000, 8000, declared '16000'"),
    ],
)
def test_the_file_has_the_declared_metadata(
    values: list[str], message: str, tmp_path: Path
) -> None:
    model = parser.parse_model(DOUBLE)
    for value in values:
        model.metadata_props.add(key="rate", value=value)
    subject = make_subject(tmp_path, model, spec=contract(metadata={"rate": "16000"}))
    assert check_metadata.applies(subject)
    assert check_metadata(subject).message == message
    assert not check_metadata.applies(make_subject(tmp_path, model))


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([0, 1, 1], ""),
        ([0, 2, 1], "output 'y' has the value 2, the labels are 0 to 1"),
        ([-1, 0, 1], "output 'y' has the value -1, the labels are 0 to 1"),
    ],
)
def test_each_value_of_integers_has_a_label(
    classes: list[int], message: str, tmp_path: Path
) -> None:
    array = np.array([classes])
    sample = write(tmp_path, 0, [np.zeros((1, 3), np.float32)], [array])
    output = Y.model_copy(update={"dtype": "int64", "labels": ("cat", "dog")})
    spec = contract(outputs=(output,))
    subject = make_subject(tmp_path, spec=spec, reference=make_reference(sample))
    assert check_labels.applies(subject)
    assert check_labels(subject).message == message
    assert not check_labels.applies(make_subject(tmp_path))
