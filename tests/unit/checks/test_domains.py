"""Operators that belong neither to ONNX nor to the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from onnx import parser
from onnx.reference.op_run import OpRun

from exporter.checks.structure_checks import (
    check_opset,
    explain_missing_kernel,
    find_foreign_operators,
)
from exporter.manifest import CustomOp, Device
from exporter.records.record import Status
from exporter.runtimes import Kernels
from tests.unit.checks.contexts import contract, make_subject

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


@pytest.mark.parametrize(
    ("named", "status"),
    [
        ({"options": {"custom_opsets": {"own": 3}}}, Status.PASS),
        ({"options": {"custom_opsets": {"own": 1}}}, Status.FAIL),
        ({"options": {"custom_opsets": {"other": 1}}}, Status.FAIL),
        ({"custom_ops": (CustomOp(name="own::Foo", reference="x.py:Foo"),)}, Status.PASS),
        # An operator of PyTorch does not name a domain of the file.
        ({"custom_ops": (CustomOp(name="own::foo", symbolic="x.py:foo"),)}, Status.FAIL),
    ],
)
def test_the_manifest_names_a_domain_by_operator_or_opset(
    named: dict[str, object], status: Status, tmp_path: Path
) -> None:
    assert check_opset(make_subject(tmp_path, OWN_DOMAIN, spec=contract(**named))).status is status


def test_a_missing_function_of_the_file_is_foreign(tmp_path: Path) -> None:
    text = IN_A_FUNCTION.replace("own.twice(x)", "own.thrice(x)").replace("other.Foo", "Relu")
    result = check_opset(make_subject(tmp_path, text))
    assert "the domain 'own' (thrice)" in result.message


@pytest.mark.parametrize(
    ("runtime", "fix"),
    [
        ("onnxruntime", "add a library as `ort_library` in custom_ops"),
        ("reference", "add a class as `reference` in custom_ops"),
        ("openvino", "this runtime accepts no kernels from custom_ops"),
    ],
)
def test_an_operator_without_a_kernel_is_reported_with_a_fix(
    runtime: str, fix: str, tmp_path: Path
) -> None:
    lacking = explain_missing_kernel(make_subject(tmp_path, OWN_DOMAIN), device(runtime))
    assert lacking == f"here has no kernel for own::Bar, own::Foo; {fix}"


@pytest.mark.parametrize(
    ("runtime", "kernels"),
    [
        ("onnxruntime", Kernels(libraries=(Path("libfoo.so"),))),
        ("reference", Kernels(operators=(Foo,))),
    ],
)
def test_kernels_for_other_operators_count_as_kernels(
    runtime: str, kernels: Kernels, tmp_path: Path
) -> None:
    subject = replace(make_subject(tmp_path, OWN_DOMAIN), kernels=kernels)
    assert explain_missing_kernel(subject, device(runtime)) == ""


def test_kernels_of_another_runtime_are_not_used(tmp_path: Path) -> None:
    subject = replace(make_subject(tmp_path, OWN_DOMAIN), kernels=Kernels(operators=(Foo,)))
    assert "own::Foo" in explain_missing_kernel(subject, device("onnxruntime"))


def test_contributed_operators_of_onnxruntime_have_kernels(tmp_path: Path) -> None:
    subject = make_subject(tmp_path, OWN_DOMAIN.replace("own", "com.microsoft"))
    assert explain_missing_kernel(subject, device("onnxruntime")) == ""
    assert "com.microsoft::Foo" in explain_missing_kernel(subject, device("reference"))


def test_an_unreadable_file_has_no_missing_kernel(tmp_path: Path) -> None:
    subject = make_subject(tmp_path)
    subject.path.write_bytes(b"\xff")
    assert explain_missing_kernel(subject, device("onnxruntime")) == ""
