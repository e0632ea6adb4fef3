"""Captured programs and models compiled by TorchScript as sources."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.export import Dim

from exporter.manifest import Axis, ModelSpec
from exporter.records.record import Record, Stage, Status
from exporter.worker.model.exported_program import find_program, require_matching_inputs
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


def scripted():
    return torch.jit.script(Net().eval())


@torch.jit.script
def function(x: torch.Tensor) -> torch.Tensor:
    y = x
    for i in range(x.size(0) % 3 + 1):
        y = y * 2.0 + float(i)
    return y[:, :3]


@torch.jit.script
def halve(x: torch.Tensor) -> torch.Tensor:
    if bool(x.sum() > 0):
        x = x / 2
    else:
        x = x * 3
    return x


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.mean() > 0):
            return x + 1
        return x - 1


class Traced(nn.Module):
    """A model with scripted parts; a tracer keeps their branches."""

    def __init__(self):
        super().__init__()
        self.branch = torch.jit.script(Branch())
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(halve(self.branch(x)))
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


def test_a_saved_program_passes(root: Path) -> None:
    save_program(root / "net.pt2")
    spec = build_spec("net.pt2", 18, 20)
    records = run_job(spec, root)
    assert [record.status for record in records.values()] == [Status.PASS] * 2, records[18].message
    # An import may search the folder for modules.
    files = {source.file for source in records[18].sources}
    # Packages that torch imports may search for modules, such as jaraco of setuptools.
    assert {name for name in files if not name.startswith("*.py")} == {"net.pt2"}


@pytest.mark.parametrize("source", ["program", "captured"])
def test_a_program_from_code_passes_with_a_measured_tolerance(root: Path, source: str) -> None:
    records = run_job(build_spec(f"saved_code.py:{source}", 18), root)
    assert records[18].status is Status.PASS, records[18].message
    (parity,) = (check for check in records[18].checks if check.check == "parity")
    # The float64 copy ran, although the program asserts that it is float32.
    assert "of_noise" in parity.metrics


@pytest.mark.parametrize("source", ["scripted", "function", "Traced"])
def test_a_compiled_model_passes_with_torchscript(root: Path, source: str) -> None:
    records = run_job(build_spec(f"saved_code.py:{source}", 13, 17), root)
    assert [record.status for record in records.values()] == [Status.PASS] * 2, records[13].message
    assert "values" in [check.check for check in records[13].checks]


def test_a_saved_script_passes(root: Path) -> None:
    torch.jit.script(Small().eval()).save(str(root / "net.pt"))
    records = run_job(build_spec("net.pt", 13), root)
    assert records[13].status is Status.PASS, records[13].message
    assert [source.file for source in records[13].sources] == ["net.pt"]


def test_each_exporter_reports_unsupported_sources(root: Path) -> None:
    record = run_job(build_spec("saved_code.py:program", 13), root)[13]
    assert (record.status, record.stage) == (Status.ERROR, Stage.CAPTURE)
    assert "got an ExportedProgram; set exporter = 'dynamo'" in record.message
    record = run_job(build_spec("saved_code.py:function", 18), root)[18]
    assert (record.status, record.stage) == (Status.ERROR, Stage.CAPTURE)
    assert "got a ScriptFunction; set exporter = 'torchscript'" in record.message


def test_an_axis_that_the_capture_fixed_fails_the_signature(root: Path) -> None:
    save_program(root / "net.pt2", dynamic=False, batch=3)
    (record,) = run_job(build_spec("net.pt2", 18), root).values()
    assert (record.status, record.check) == (Status.FAIL, "signature")
    assert "axis 'batch' of input 'x' is fixed at 3" in record.message


def test_a_fixed_size_that_is_dynamic_in_the_program_fails(root: Path) -> None:
    save_program(root / "net.pt2")
    spec = build_spec(
        "net.pt2",
        18,
        inputs=(declare_input("x", 3, 4),),
        outputs=(declare_output("y", 3, 3),),
        axes=(),
    )
    (record,) = run_job(spec, root).values()
    assert (record.status, record.check) == (Status.FAIL, "signature")
    assert "dimension 0 of input 'x' is dynamic" in record.message


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
        require_matching_inputs(load_model(spec, root), spec)
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
