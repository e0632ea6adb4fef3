"""Backends of the ONNX backend API, and the messages for invalid ones."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from onnx.backend.base import Backend, BackendRep
from onnx.reference import ReferenceEvaluator

from exporter.checks.validity_checks import check_placement
from exporter.manifest import Device
from exporter.records.record import Status
from exporter.runtimes import LoadFailure, RunFailure, RuntimeUnavailable, Session, open_session
from tests.unit.checks.contexts import make_subject

# The import of `onnxruntime.backend` reads the version of onnx in a deprecated way.
pytestmark = pytest.mark.filterwarnings("ignore:onnx.version is deprecated")

MODEL = """<ir_version: 8, opset_import: ["" : 18]>
g (float[n] a, float[n] b) => (float[n] d) { d = Sub(a, b) }"""
INPUTS = {"b": np.float32([1, 2]), "a": np.float32([10, 20])}


class Prepared(BackendRep):
    def __init__(self, model: onnx.ModelProto) -> None:
        self.evaluator = ReferenceEvaluator(model)

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        named = dict(zip(self.evaluator.input_names, inputs, strict=True))
        return tuple(self.evaluator.run(None, named))


class Silent(Backend):
    """A backend with the `supports_device` of the base class."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Any:
        return Prepared(model)


class OnTpu(Silent):
    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "TPU:0"


class Broken(OnTpu):
    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Any:
        raise ValueError("no kernel for Sub\nsecond line")


class Confused(Silent):
    @classmethod
    def supports_device(cls, device: str) -> bool:
        raise ValueError(f"what is {device}?")


class Odd(Silent):
    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Any:
        class BackendRep:
            def run(self, inputs: Any) -> Any:
                return {"d": inputs}

        return BackendRep()


class Unprepared(Silent):
    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Any:
        return None


@pytest.fixture(autouse=True)
def backends(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("made_up_backends")
    for each in (Silent, OnTpu, Broken, Confused, Odd, Unprepared):
        setattr(module, each.__name__, each)
    monkeypatch.setitem(sys.modules, module.__name__, module)


def opened(folder: Path, module: str, device: str = "", model: str = MODEL) -> Session:
    path = folder / "18.onnx"
    onnx.save(parser.parse_model(model), path)
    return open_session(path, Device(name="x", runtime="backend", module=module, device=device))


@pytest.mark.parametrize(
    ("module", "device"),
    [("onnxruntime.backend", ""), ("made_up_backends:OnTpu", "TPU:0")],
)
def test_a_backend_runs_a_file(module: str, device: str, tmp_path: Path) -> None:
    session = opened(tmp_path, module, device)
    assert session.output_names == ("d",)
    (output,) = session.run(INPUTS)
    np.testing.assert_array_equal(output, np.float32([9, 18]), strict=True)


def test_an_initializer_that_is_also_an_input_is_optional(tmp_path: Path) -> None:
    model = parser.parse_model(MODEL)
    model.graph.initializer.append(numpy_helper.from_array(np.float32([1, 1]), "b"))
    onnx.save(model, tmp_path / "18.onnx")
    device = Device(name="x", runtime="backend", module="onnxruntime.backend")
    session = open_session(tmp_path / "18.onnx", device)
    (output,) = session.run({"a": np.float32([2, 3])})
    np.testing.assert_array_equal(output, np.float32([1, 2]))


@pytest.mark.parametrize(
    ("module", "device", "message"),
    [
        ("no_such_package.backend", "", "no_such_package.backend cannot be imported: No module"),
        ("onnxruntime.backend", "CUDA:0", "onnxruntime.backend does not support CUDA:0 on this"),
        ("made_up_backends:OnTpu", "", "made_up_backends:OnTpu does not support CPU"),
        ("made_up_backends:Confused", "NPU", "supports_device('NPU') failed: what is NPU?"),
    ],
)
def test_a_missing_module_or_device_is_unavailable(
    module: str, device: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeUnavailable) as raised:
        opened(tmp_path, module, device)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("module", "device", "message"),
    [
        ("json", "", "json is not an ONNX backend: it has no `prepare`"),
        ("made_up_backends:Missing", "", "made_up_backends:Missing is not an ONNX backend"),
        ("made_up_backends:Broken", "TPU:0", "no kernel for Sub"),
        ("made_up_backends:Unprepared", "", "the object that `prepare` returned has no `run`"),
    ],
)
def test_a_backend_that_does_not_load_the_file_is_a_load_failure(
    module: str, device: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(LoadFailure) as raised:
        opened(tmp_path, module, device)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_result_that_is_no_sequence_is_a_run_failure(tmp_path: Path) -> None:
    with pytest.raises(RunFailure, match="returned no sequence"):
        opened(tmp_path, "made_up_backends:Odd").run(INPUTS)


@pytest.mark.parametrize(
    ("module", "device", "status", "message"),
    [
        ("onnxruntime.backend", "", Status.PASS, "onnxruntime.backend reports that it runs on CPU"),
        ("made_up_backends:OnTpu", "TPU:0", Status.PASS, "reports that it runs on TPU:0"),
        ("made_up_backends:Silent", "CPU", Status.PASS, "reports that it runs on CPU"),
        # The base class supports every device, which is no report of this backend.
        ("made_up_backends:Silent", "CUDA:0", Status.INCONCLUSIVE, "does not report"),
    ],
)
def test_the_placement_is_the_report_of_the_backend(
    module: str, device: str, status: Status, message: str, tmp_path: Path
) -> None:
    session = opened(tmp_path, module, device)
    result = check_placement(make_subject(tmp_path), session, "x")
    assert result.status is status
    assert message in result.message
