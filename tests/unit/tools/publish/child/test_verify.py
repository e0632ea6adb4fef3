"""A published folder that was moved passes, and a damaged one has problems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper, parser

from exporter.manifest import Device
from exporter.tools.publish.child.verify import find_differences, verify_folder
from exporter.tools.publish.protocol import (
    Allowance,
    PublishRequest,
    PublishTarget,
    TargetResult,
)
from tests.unit.factory import make_spec

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[n, 2] x) => (float[n, 2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }
"""
CPU = Device(name="cpu", runtime="onnxruntime")
GPU = Device(name="gpu", runtime="onnxruntime", providers=("NoSuchProvider",))
ALLOWED = (Allowance(output="y", atol=1e-6, rtol=0.0),)


def make_folder(folder: Path) -> Path:
    """Write a file with external weights and a data set."""
    folder.mkdir()
    model = parser.parse_model(TEXT)
    weights = numpy_helper.from_array(np.asarray([1, 2], np.float32), "w")
    model.graph.initializer[0].CopyFrom(weights)  # as bytes: only raw data can be external
    onnx.save(
        model,
        folder / "model.onnx",
        save_as_external_data=True,
        location="w.data",
        size_threshold=0,
    )
    sample = folder / "test_data_set_0"
    sample.mkdir()
    x = np.ones((3, 2), np.float32)
    y = x * np.asarray([1, 2], np.float32)
    for name, array in (("input_0", x), ("output_0", y)):
        data = numpy_helper.from_array(array).SerializeToString()
        (sample / f"{name}.pb").write_bytes(data)
    return folder


def verify(folder: Path, *devices: Device) -> TargetResult:
    target = PublishTarget(opset=17, devices=devices or (CPU,), folder=str(folder), allowed=ALLOWED)
    request = PublishRequest(
        step="verify", spec=make_spec(), root=str(folder), built=str(folder), targets=(target,)
    )
    return verify_folder(request, target)


def test_a_complete_folder_passes(tmp_path: Path) -> None:
    assert verify(make_folder(tmp_path / "net")) == TargetResult(opset=17)


def test_the_cpu_runs_the_file_if_its_device_is_unavailable(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "net")
    result = verify(folder, GPU)
    assert not result.problems
    assert result.notes[0].startswith("not loaded on gpu, which is unavailable")
    (folder / "test_data_set_0/output_0.pb").unlink()
    assert verify(folder, GPU).problems


def test_a_file_without_an_available_runtime_has_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.tools.publish.child.verify._CPU", GPU)
    (problem,) = verify(make_folder(tmp_path / "net"), GPU).problems
    assert problem.startswith("no runtime is available: not loaded on gpu, which is unavailable")


def other_weights(folder: Path) -> None:
    (folder / "w.data").write_bytes(np.asarray([1, 3], np.float32).tobytes())


def no_weights(folder: Path) -> None:
    (folder / "w.data").unlink()


def short_weights(folder: Path) -> None:
    (folder / "w.data").write_bytes(b"\0")


def linked_weights(folder: Path) -> None:
    (folder / "w.data").rename(folder.parent / "w.data")
    (folder / "w.data").symlink_to(folder.parent / "w.data")


def no_file(folder: Path) -> None:
    (folder / "model.onnx").unlink()


def invalid_file(folder: Path) -> None:
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    model.graph.node[0].op_type = "NoSuchOperator"
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def no_samples(folder: Path) -> None:
    (folder / "test_data_set_0").rename(folder / "elsewhere")


def other_dtype(folder: Path) -> None:
    wrong = numpy_helper.from_array(np.ones((3, 2), np.float64))
    (folder / "test_data_set_0/output_0.pb").write_bytes(wrong.SerializeToString())


def other_input(folder: Path) -> None:
    wrong = numpy_helper.from_array(np.ones((3, 5), np.float32))
    (folder / "test_data_set_0/input_0.pb").write_bytes(wrong.SerializeToString())


def damaged_input(folder: Path) -> None:
    (folder / "test_data_set_0/input_0.pb").write_bytes(b"\xff\xff\xff")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (other_weights, "cpu, test_data_set_0: output 'y' differs in 50.00% of its elements"),
        (no_weights, "external data 'w.data' is missing"),
        (short_weights, "ends at byte 8 of 'w.data', which has 1"),
        (linked_weights, "external data 'w.data' is a link"),
        (no_file, "model.onnx: cannot be read"),
        (invalid_file, "cpu refuses it"),
        (no_samples, "it has no test data"),
        (other_dtype, "output 'y' is float32 [3, 2], not float64 [3, 2]"),
        (other_input, "cpu fails on test_data_set_0"),
        (damaged_input, "test_data_set_0 cannot be read"),
    ],
)
def test_a_damaged_folder_has_problems(tmp_path: Path, damage: object, message: str) -> None:
    assert callable(damage)
    folder = make_folder(tmp_path / "net")
    damage(folder)
    result = verify(folder)
    assert message in " ".join(result.problems)
    assert str(tmp_path) not in " ".join(result.problems)


def first(differences: Iterator[str]) -> str:
    return next(differences, "")


def test_outputs_are_compared_with_the_published_tolerance() -> None:
    one, other = np.zeros(10, np.float32), np.zeros(10, np.float32)
    other[0] = 1.0
    limit = {"y": Allowance(output="y", atol=0.5, rtol=0.0)}
    wide = {"y": Allowance(output="y", atol=0.5, rtol=0.0, outside=0.1)}
    assert list(find_differences(["y"], [one], [one], limit)) == []
    assert list(find_differences(["y"], [one], [other], wide)) == []
    assert "10.00% of its elements" in first(find_differences(["y"], [one], [other], limit))
    assert "1 outputs, 2 in the test data" in first(find_differences(["y"], [one], [one, one], {}))
    assert "another kind of value" in first(find_differences(["y"], [[one]], [one], limit))
    assert "has 1 items, not 2" in first(find_differences(["y"], [[one]], [[one, one]], limit))
    assert list(find_differences(["y"], [[one, one]], [[one, other]], limit))
    integers = one.astype(np.int64)
    assert "differs" in first(find_differences(["n"], [integers], [integers + 1], {}))
    nan = np.full(10, np.nan, np.float32)
    assert list(find_differences(["y"], [nan], [nan], limit)) == []
    assert list(find_differences(["y"], [nan], [one], limit))


def test_bfloat16_is_compared(tmp_path: Path) -> None:
    proto = TensorProto(data_type=TensorProto.BFLOAT16, dims=[1], raw_data=b"\x80\x3f")
    one = numpy_helper.to_array(proto)
    assert list(find_differences(["y"], [one], [one], {})) == []
    assert list(find_differences(["y"], [one], [one * one + one], {}))


def test_masked_positions_are_not_compared() -> None:
    one, other = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    other[0, 2] = 1.0
    allowed = other == 0
    assert list(find_differences(["y"], [one], [other], {}))
    assert list(find_differences(["y"], [one], [other], {}, {"y": allowed})) == []
    assert list(find_differences(["y"], [one], [other], {}, {"y": ~allowed}))
    assert "is float32 [2, 3]" in first(
        find_differences(["y"], [one], [other[:1]], {}, {"y": allowed[:1]})
    )
