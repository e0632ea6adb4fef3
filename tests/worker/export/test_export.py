"""Capture, conversion, options and files of small models."""

from __future__ import annotations

import inspect
from pathlib import Path

import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from torch.onnx import _constants
from torch.onnx._internal.exporter import _constants as dynamo

from exporter.checks.protocol import CheckedFile
from exporter.jobs import JobFolder, Reference
from exporter.manifest import ModelSpec
from exporter.manifest.schema.entry import REMOVED_OPTIONS, OptionsTable
from exporter.manifest.syntax.releases import RELEASES, ReleaseLimits, find_first_release
from exporter.manifest.syntax.values import (
    FIRST_DYNAMO_OPSET,
    FIRST_OPSET,
    LAST_OPSET,
    NATIVE_OPSETS,
    REQUESTABLE_OPSETS,
)
from exporter.records.record import Status
from exporter.worker.export.graph_names import write_declared_sizes
from exporter.worker.export.write_onnx import write_artifact
from exporter.worker.verify.run_checks import run_structure_checks
from tests.worker.contracts import ROOT, declare_input, declare_output, make_contract
from tests.worker.graphs import convert, trace


def export(spec: ModelSpec, folder: Path, opset: int, *, dynamo: bool) -> Path:
    graph = convert(spec, opset, folder, dynamo=dynamo)
    return write_artifact(graph, spec, opset, JobFolder(folder), {"model": spec.id})


def signature(path: Path) -> tuple[list[tuple[str, list[object]]], ...]:
    session = onnxruntime.InferenceSession(str(path))
    return tuple(
        [(value.name, list(value.shape)) for value in values]
        for values in (session.get_inputs(), session.get_outputs())
    )


BOTH = pytest.mark.parametrize(("opset", "dynamo"), [(13, False), (18, True)])


@pytest.mark.parametrize("name", ["linear", "relu", "y"])
@BOTH
def test_an_inner_value_with_the_name_of_an_output_is_renamed(
    opset: int, dynamo: bool, name: str, tmp_path: Path
) -> None:
    spec = make_contract("TwoLayers", outputs=(declare_output(name, "batch", 3),))
    path = export(spec, tmp_path, opset, dynamo=dynamo)
    onnx.checker.check_model(path, full_check=True)
    model = onnx.load(path)
    inner = [value for node in model.graph.node for value in node.output]
    assert sorted(inner) == sorted(set(inner))
    assert [value.name for value in model.graph.output] == [name]
    assert (f"{name}_1" in inner) == (dynamo and name != "y"), inner


@BOTH
def test_file_contains_no_path_of_this_machine(opset: int, dynamo: bool, tmp_path: Path) -> None:
    content = export(make_contract("Affine"), tmp_path, opset, dynamo=dynamo).read_bytes()
    assert str(ROOT).encode() not in content
    assert b"nets.py" not in content
    assert b"pkg.torch" not in content
    assert {item.key: item.value for item in onnx.load_from_string(content).metadata_props} == {
        "exporter.model": "net"
    }


def test_wrapped_model_keeps_names_of_weights(tmp_path: Path) -> None:
    spec = make_contract("Affine", inputs=(declare_input(at="kwargs.x"),))
    names = [
        item.name for item in onnx.load(export(spec, tmp_path, 13, dynamo=False)).graph.initializer
    ]
    assert sorted(names) == ["linear.bias", "linear.weight"]


def test_unknown_size_of_torchscript_is_written_and_noted(tmp_path: Path) -> None:
    spec = make_contract("PixelShuffle", "x [batch, 4, 3, 3] -> y [batch, 1, 6, 6]")
    graph, notes = trace(spec, 9, tmp_path)
    assert list(graph.graph.outputs[0].shape or ()) == ["batch", 1, 6, 6]
    assert len(notes) == 1
    assert "does not know the size of dimension 1, 2, 3 of output 'y'" in notes[0]


def test_axis_of_torchscript_in_place_of_a_size_is_replaced() -> None:
    # TorchScript uses one symbol for two dimensions. Every run of the file compares the size.
    spec = make_contract("Affine", "x [batch, 4] -> y [batch, 7, 3]")
    value = ir.Value(name="y", shape=ir.Shape(["batch", "batch", 3]))
    value.dtype = ir.DataType.FLOAT
    model = ir.Model(ir.Graph([], [value], nodes=[], name="g"), ir_version=8)
    (note,) = write_declared_sizes(model, spec)
    assert list(value.shape or ()) == ["batch", 7, 3]
    assert "dimension 1 of output 'y'" in note


def test_axis_instead_of_a_declared_size_is_kept(tmp_path: Path) -> None:
    # Declared [3, 3] although the first dimension follows the batch: under dynamo the file says so.
    spec = make_contract("Affine", "x [batch, 4] -> y [3, 3]")
    assert signature(export(spec, tmp_path, 18, dynamo=True))[1] == [("y", ["batch", 3])]


def test_small_models_keep_their_weights_inside(tmp_path: Path) -> None:
    export(make_contract("Affine"), tmp_path, 18, dynamo=True)
    assert [file.name for file in tmp_path.iterdir()] == ["18.onnx"]


def test_equal_models_give_equal_bytes(tmp_path: Path) -> None:
    files = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        files.append(export(make_contract("Affine"), tmp_path / name, 18, dynamo=True).read_bytes())
    assert files[0] == files[1]


def test_weights_are_inputs_at_ir_version_3(tmp_path: Path) -> None:
    spec = make_contract("Affine", ir_version=3)
    path = export(spec, tmp_path, 18, dynamo=True)
    model = onnx.load(path)
    assert model.ir_version == 3
    assert [item.name for item in model.graph.input] == ["x", "linear.weight", "linear.bias"]
    subject = CheckedFile(
        folder=JobFolder(tmp_path),
        opset=18,
        spec=spec,
        reference=Reference(samples=(), noise=(), output_spread=()),
    )
    results = run_structure_checks(subject)
    assert [(item.check, item.status) for item in results] == [
        (name, Status.PASS) for name in ("opset", "wellformed", "signature")
    ]


ARGUMENTS = frozenset(inspect.signature(torch.onnx.export).parameters)


def test_every_argument_of_torch_is_an_option_or_a_known_key() -> None:
    known = {
        *OptionsTable.model_fields,
        *OptionsTable.misplaced_keys,
    }
    assert ARGUMENTS - known == set()


def test_every_option_is_an_argument_of_torch() -> None:
    assert set(OptionsTable.model_fields) - ARGUMENTS == set()


def test_removed_options_are_no_arguments() -> None:
    assert ARGUMENTS.isdisjoint(REMOVED_OPTIONS)


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
        opset = max(n for n in range(known.opset, known.opset + 9) if _loads(n, 3))
        ir_version = max(n for n in range(known.ir_version, known.ir_version + 9) if _loads(9, n))
        major, minor = map(int, onnxruntime.__version__.split(".")[:2])
        row = ReleaseLimits((major, minor), opset, ir_version)
        is_complete = (known.opset, known.ir_version) == (opset, ir_version)
        assert is_complete, f"add {row} to RELEASES; then python -m benchmarks.documents"


@pytest.mark.parametrize("opset", [FIRST_OPSET, LAST_OPSET])
def test_first_and_last_opset_load(opset: int) -> None:
    if opset > _find_installed().opset:
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} is too old")
    assert _loads(opset, 3)
