"""Weights under the names of the manifest, in the files of both exporters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from exporter.checks.protocol import CheckedFile
from exporter.checks.structure_checks import check_signature
from exporter.jobs import JobFolder, Reference
from exporter.manifest import ModelSpec, ParameterNames
from exporter.records.record import Stage, Status
from exporter.worker.export.graph_names import rename_weights
from exporter.worker.export.weight_interface import describe_weights, resolve_weight_names
from exporter.worker.export.write_onnx import write_artifact
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure
from tests.worker.contracts import ROOT, make_contract
from tests.worker.graphs import convert, draw_declared

BOTH = pytest.mark.parametrize(("opset", "dynamo"), [(13, False), (18, True)])


def export(spec: ModelSpec, folder: Path, opset: int, *, dynamo: bool) -> CheckedFile:
    model = load_model(spec, ROOT)
    names = resolve_weight_names(model, spec)
    graph = convert(spec, opset, folder, dynamo=dynamo)
    rename_weights(graph, names)
    write_artifact(graph, spec, opset, JobFolder(folder), {})
    weights, _ = describe_weights(model, spec, draw_declared(spec), names, JobFolder(folder))
    reference = Reference(samples=(), noise=(), output_spread=(), weights=weights)
    return CheckedFile(folder=JobFolder(folder), opset=opset, spec=spec, reference=reference)


def stored(subject: CheckedFile) -> dict[str, np.ndarray]:
    model = onnx.load(subject.path)
    onnx.checker.check_model(model)
    return {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}


def two_layers(**names: object) -> ModelSpec:
    return make_contract("TwoLayers", parameters=ParameterNames.model_validate(names))


@BOTH
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"template": "learned_{}"}, ["learned_0", "learned_1", "learned_2", "learned_3"]),
        ({"names": ("a", "b", "c", "d")}, ["a", "b", "c", "d"]),
        # One weight takes the name that another one had.
        (
            {"names": ("second.weight", "b", "first.weight", "d")},
            ["second.weight", "b", "first.weight", "d"],
        ),
        (
            {"patterns": {"*.weight": "w{}", "second.bias": "end"}},
            ["w0", "first.bias", "w1", "end"],
        ),
    ],
)
def test_weights_have_names_of_the_manifest(
    names: dict[str, object], expected: list[str], opset: int, dynamo: bool, tmp_path: Path
) -> None:
    spec = two_layers(**names)
    subject = export(spec, tmp_path, opset, dynamo=dynamo)
    weights = stored(subject)
    model = load_model(spec, ROOT)
    for name, (_, parameter) in zip(expected, model.named_parameters(), strict=True):
        assert np.array_equal(weights[name], parameter.detach().numpy())
    result = check_signature(subject)
    assert (result.status, result.message) == (Status.PASS, "")


def test_intermediate_value_with_the_same_name_is_renamed(tmp_path: Path) -> None:
    plain = onnx.load(export(two_layers(template="w_{}"), tmp_path, 13, dynamo=False).path)
    inner = plain.graph.node[0].output[0]
    names = {"names": (inner, "b", "c", "d")}
    subject = export(two_layers(**names), tmp_path, 13, dynamo=False)
    assert inner in stored(subject)
    assert check_signature(subject).status is Status.PASS


@BOTH
def test_shared_weight_has_one_name(opset: int, dynamo: bool, tmp_path: Path) -> None:
    spec = make_contract(
        "TiedLayers",
        "x [batch, 4] -> y [batch, 4]",
        parameters=ParameterNames(template="learned_{}"),
    )
    subject = export(spec, tmp_path, opset, dynamo=dynamo)
    assert set(stored(subject)) >= {"learned_0", "learned_1", "learned_2"}
    assert check_signature(subject).message == ""


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            {"names": tuple("abcde")},
            "5 names for 4 weights: first.weight, first.bias, second.weight",
        ),
        ({"patterns": {"third.*": "w_{}"}}, "'third.*' matches none of the remaining weights"),
        ({"patterns": {"*.bias": "b"}}, "'*.bias' matches 2 weights, but 'b' is one name"),
        ({"patterns": {"first.*": "w_{}", "second.*": "w_{}"}}, "2 weights have the name 'w_0'"),
        ({"names": ("first.bias",)}, "'first.bias' for first.weight is the name of another weight"),
        ({"patterns": {"first.bias": "x"}}, "'x' for first.bias is also an input or output"),
    ],
)
def test_names_must_match_the_model(names: dict[str, object], message: str) -> None:
    spec = two_layers(**names)
    with pytest.raises(Failure) as caught:
        resolve_weight_names(load_model(spec, ROOT), spec)
    assert caught.value.stage is Stage.SOURCE
    assert message in caught.value.message
