"""The driver of tract, with a module that has tract's interface and negates its inputs."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from exporter.manifest import Device
from exporter.runtimes import LoadFailure, RunFailure, Session, open_session
from exporter.runtimes.drivers.driver import name_module

MODEL = '<ir_version: 8, opset_import: ["" : 18]> g (float[n] x) => (float[n] y) { y = Neg(x) }'
TRACT = Device(name="t", runtime="tract")


class FakeModel:
    """A model that tract loaded; its output has the name of a node."""

    def input_count(self) -> int:
        return 1

    def input_name(self, index: int) -> str:
        return "x"

    def into_model(self) -> FakeModel:
        return self

    def into_runnable(self) -> FakeModel:
        return self

    def run(self, inputs: list[Any]) -> list[Any]:
        if inputs[0].dtype != np.float32:
            raise RuntimeError("incorrect dtype\n\nStack backtrace:\n 0: tract")
        return [SimpleNamespace(to_numpy=lambda: -inputs[0])]


def load(path: str) -> FakeModel:
    if not Path(path).exists():
        raise RuntimeError(f"cannot open {path}")
    return FakeModel()


@pytest.fixture(autouse=True)
def tract(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("tract")
    module.onnx = lambda: SimpleNamespace(load=load)
    monkeypatch.setitem(sys.modules, "tract", module)
    monkeypatch.delitem(sys.modules, name_module("tract"), raising=False)


def opened(folder: Path) -> Session:
    onnx.save(parser.parse_model(MODEL), folder / "18.onnx")
    return open_session(folder / "18.onnx", TRACT)


def test_tract_runs_a_file(tmp_path: Path) -> None:
    session = opened(tmp_path)
    assert session.output_names == ("y",), "the name in the file"
    (output,) = session.run({"x": np.float32([1, 2])})
    np.testing.assert_array_equal(output, np.float32([-1, -2]), strict=True)
    (scalar,) = session.run({"x": np.float32(1).reshape(())})
    assert np.asarray(scalar).shape == ()
    assert session.placement is not None
    assert session.placement.requested == "CPU"


def test_failures_of_tract_are_those_of_a_session(tmp_path: Path) -> None:
    session = opened(tmp_path)
    with pytest.raises(RunFailure, match=r"^incorrect dtype$"):
        session.run({"x": np.zeros(1)})
    with pytest.raises(RunFailure, match="no input x"):
        session.run({})
    with pytest.raises(RunFailure, match="the file has no input z"):
        session.run({"x": np.float32([1]), "z": np.float32([1])})
    with pytest.raises(LoadFailure, match="cannot open missing"):
        open_session(tmp_path / "missing.onnx", TRACT)
