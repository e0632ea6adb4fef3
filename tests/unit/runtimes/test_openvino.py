"""OpenVINO: its devices, its precision, and the faults that it does not report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from exporter.manifest import Device
from exporter.runtimes import LoadFailure, RuntimeUnavailable, Session, open_session

openvino = pytest.importorskip("openvino", reason="an optional runtime")

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
CHAIN = HEAD + "g (float[n] x) => (float[n] y) { c = Exp(x) y = Neg(c) }"


def opened(folder: Path, text: str, device: str = "") -> Session:
    path = folder / "18.onnx"
    onnx.save(parser.parse_model(text), path)
    return open_session(path, Device(name="x", runtime="openvino", device=device))


def test_openvino_reports_the_placement_of_its_nodes(tmp_path: Path) -> None:
    placed = opened(tmp_path, CHAIN).placement
    assert placed is not None
    assert placed.requested == "CPU"
    assert list(placed.nodes) == ["CPU"]
    assert sum(placed.nodes["CPU"].values()) >= 1


@pytest.mark.parametrize("device", ["AUTO", "HETERO:CPU", "AUTO:CPU"])
def test_a_list_of_devices_is_a_device(device: str, tmp_path: Path) -> None:
    session = opened(tmp_path, CHAIN, device)
    assert session.placement is not None
    assert list(session.placement.nodes) == [device]
    (output,) = session.run({"x": np.float32([0, 0])})
    np.testing.assert_array_equal(output, np.float32([-1, -1]))


@pytest.mark.parametrize("device", ["XPU", "HETERO:XPU,CPU", "CPU9"])
def test_a_missing_device_is_unavailable(device: str, tmp_path: Path) -> None:
    with pytest.raises(
        RuntimeUnavailable, match=r"OpenVINO finds no \w+ on this machine; it has CPU"
    ):
        opened(tmp_path, CHAIN, device)


def test_openvino_computes_in_float32_and_its_settings_are_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, object] = {}
    compile_model = openvino.Core.compile_model

    def spy(self: object, model: object, device: str, settings: dict[str, object]) -> object:
        seen.update(settings)
        return compile_model(self, model, device, settings)

    monkeypatch.setattr(openvino.Core, "compile_model", spy)
    opened(tmp_path, CHAIN)
    assert seen.pop("INFERENCE_NUM_THREADS") == 1
    assert seen == {"INFERENCE_PRECISION_HINT": "f32", "EXECUTION_MODE_HINT": "ACCURACY"}
    shown = ", ".join(f"{name}={value}" for name, value in seen.items())
    assert Device(name="x", runtime="openvino").settings == f"{shown}, 1 thread"
    plain = Device(name="x", runtime="openvino", session_options=dict.fromkeys(seen, "default"))
    assert (plain.settings, plain.session_settings) == ("1 thread", {"INFERENCE_NUM_THREADS": 1})


def test_values_with_several_names_keep_each_name(tmp_path: Path) -> None:
    body = "{ c = Relu(a) d = Identity(c) e = Identity(c) }"
    text = HEAD + f"g (float[n] a, float[n] b) => (float[n] e, float[n] a, float[n] d) {body}"
    session = opened(tmp_path, text)
    assert session.output_names == ("e", "a", "d")
    inputs = {"a": np.float32([-1, 2]), "b": np.float32([0])}
    outputs = [output.tolist() for output in session.run(inputs)]
    assert outputs == [[0, 2], [-1, 2], [0, 2]]


def test_an_unknown_operator_is_a_load_failure_with_its_name(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 18, "own" : 1]>'
    text += "g (float[n] x) => (float[n] y) { y = own.Unknown(x) }"
    with pytest.raises(LoadFailure, match=r"own\.Unknown") as raised:
        opened(tmp_path, text)
    assert "src/" not in str(raised.value)


def test_strings_are_refused_because_they_crash_openvino(tmp_path: Path) -> None:
    text = HEAD + "g (string[n] x) => (string[n] y) { y = Identity(x) }"
    with pytest.raises(LoadFailure, match="x contains strings"):
        opened(tmp_path, text)


def test_outputs_outlive_the_next_run(tmp_path: Path) -> None:
    session = opened(tmp_path, CHAIN)
    (first,) = session.run({"x": np.float32([0, 0])})
    session.run({"x": np.float32([1, 1])})
    assert first.tolist() == [-1, -1]
