"""Captured programs and models compiled by TorchScript as sources."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.export import Dim

from exporter.manifest import Axis, ModelSpec
from exporter.records.record import Record, Stage, Status
from exporter.worker.model.captured_models import require_matching_inputs
from exporter.worker.model.exported_program import find_program
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure
from tests.traps.prove import export
from tests.worker.contracts import declare_input, declare_output, make_contract

CODE = '''
import torch
from torch import nn


class Net(nn.Module):
    """A model with a cast: its captured program asserts the dtype."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("scale", torch.full((3,), 2.0))

    def forward(self, x):
        return (self.linear(x) * self.scale).to(x.dtype) + torch.tensor(0.5)


def program():
    inputs = (torch.zeros(5, 4),)
    return torch.export.export(
        Net().eval(), inputs, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
    )


captured = program()


@torch.jit.script
def function(x: torch.Tensor) -> torch.Tensor:
    y = x
    for i in range(x.size(0) % 3 + 1):
        y = y * 2.0 + float(i)
    return y[:, :3]

'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "saved_code.py").write_text(CODE)
    return tmp_path


def run_job(spec: ModelSpec, root: Path) -> dict[int, Record]:
    records = export(spec, root / "build" / "net", root=root)
    return {record.cell.opset: record for record in records}


def build_spec(source: str, *opsets: int, **changes: object) -> ModelSpec:
    values: dict[str, object] = {"manifest": "m.toml", "source": source, "opsets": opsets}
    return make_contract("", **(values | changes))


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def save_program(path: Path, *, dynamic: bool = True, batch: int = 5) -> None:
    program = torch.export.export(
        Small().eval(),
        (torch.zeros(batch, 4),),
        dynamic_shapes=({0: Dim.DYNAMIC},) if dynamic else None,
    )
    torch.export.save(program, path)


@pytest.mark.parametrize("source", ["program", "captured"])
def test_a_program_from_code_passes_with_a_measured_tolerance(root: Path, source: str) -> None:
    records = run_job(build_spec(f"saved_code.py:{source}", 18), root)
    assert records[18].status is Status.PASS, records[18].message
    (parity,) = (check for check in records[18].checks if check.check == "parity")
    # The float64 copy ran, although the program asserts that it is float32.
    assert "of_noise" in parity.metrics


def test_each_exporter_reports_unsupported_sources(root: Path) -> None:
    record = run_job(build_spec("saved_code.py:program", 13), root)[13]
    assert (record.status, record.stage) == (Status.ERROR, Stage.CAPTURE)
    assert "got an ExportedProgram; set exporter = 'dynamo'" in record.message
    record = run_job(build_spec("saved_code.py:function", 18), root)[18]
    assert (record.status, record.stage) == (Status.ERROR, Stage.CAPTURE)
    assert "got a ScriptFunction; set exporter = 'torchscript'" in record.message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "as float32 [2, 4], declared is float32 [batch, 4] with batch=3"),
        (
            {"inputs": (declare_input(dtype="float64"),), "axes": (Axis(name="batch", example=2),)},
            "as float32 [2, 4], declared is float64 [batch, 4] with batch=2",
        ),
        (
            {"inputs": (declare_input(), declare_input("z", at="args[1]"))},
            "captured for another call: it has 1 inputs (",
        ),
        ({"inputs": (declare_input(at="kwargs.input"),)}, "the manifest declares kwargs.input"),
    ],
)
def test_a_program_that_cannot_run_on_the_declared_inputs_fails(
    root: Path, changes: dict[str, object], message: str
) -> None:
    save_program(root / "net.pt2", dynamic=False, batch=2)
    spec = build_spec("net.pt2", 18, **changes)
    with pytest.raises(Failure) as caught:
        require_matching_inputs(find_program(load_model(spec, root)), spec)
    assert (caught.value.stage, caught.value.status) == (Stage.SOURCE, Status.FAIL)
    assert message in caught.value.message


def test_keywords_are_named_in_the_order_of_the_program(root: Path) -> None:
    class Minus(torch.nn.Module):
        def forward(
            self, x: torch.Tensor, *, plus: torch.Tensor, minus: torch.Tensor
        ) -> torch.Tensor:
            return x + plus - 2 * minus

    program = torch.export.export(
        Minus(),
        (torch.zeros(5, 4),),
        kwargs={"plus": torch.zeros(4), "minus": torch.zeros(4)},
        dynamic_shapes={"x": {0: Dim.DYNAMIC}, "plus": None, "minus": None},
    )
    torch.export.save(program, root / "net.pt2")
    spec = build_spec(
        "net.pt2",
        18,
        inputs=(
            declare_input("m", 4, at="kwargs.minus"),
            declare_input(),
            declare_input("p", 4, at="kwargs.plus"),
        ),
        outputs=(declare_output("y", "batch", 4),),
    )
    (record,) = run_job(spec, root).values()
    assert record.status is Status.PASS, record.message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "train"}, "its capture fixed the mode; remove `mode`"),
        ({"init": {"a": 1}}, "accepts no init arguments"),
    ],
)
def test_a_program_accepts_no_settings_of_a_module(
    root: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(Failure, match=message):
        load_model(build_spec("saved_code.py:captured", 18, **changes), root)


def test_a_module_has_no_program(root: Path) -> None:
    assert find_program(Small()) is None
    assert find_program(load_model(build_spec("saved_code.py:program", 18), root)) is not None
