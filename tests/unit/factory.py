"""Records and contracts for tests: a test sets only the fields that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from exporter.manifest import Axis, Device, Input, Manifest, ModelSpec, Output, Project
from exporter.records.baseline import parse_cell
from exporter.records.record import (
    Artifact,
    CellId,
    CheckResult,
    Record,
    Route,
    RunRecord,
    Stage,
    Status,
)

T = TypeVar("T")

TOOLS = {"exporter": "0.1.0", "onnx": "1.23.2", "python": "3.11.15", "torch": "2.13.0"}
DYNAMO = Route(exporter="dynamo", capture="export", reason="dynamo creates opset 18 and later ones")
TORCHSCRIPT = Route(
    exporter="torchscript", capture="trace", reason="dynamo creates only opset 18 and later ones"
)
#: A stage that fits each status with a stage.
_STAGES = {
    Status.FAIL: Stage.PARITY,
    Status.INCONCLUSIVE: Stage.PARITY,
    Status.ERROR: Stage.CONVERT,
    Status.CRASH: Stage.CONVERT,
    Status.TIMEOUT: Stage.CAPTURE,
    Status.KILLED: Stage.SOURCE,
    Status.UNAVAILABLE: Stage.LOAD,
    Status.XFAIL: Stage.CONVERT,
}


def make_record(cell: CellId | str, status: Status | str = Status.PASS, **fields: Any) -> Record:
    """Make a record of `model/opset/device`; stage, route and artifact fit the status."""
    status, id = Status(status), parse_cell(str(cell))
    ran = status is not Status.SKIP
    defaults: dict[str, Any] = {
        "cell": id,
        "status": status,
        "stage": _STAGES.get(status),
        "route": (DYNAMO if id.opset >= 18 else TORCHSCRIPT) if ran else None,
    }
    if status in (Status.PASS, Status.FAIL, Status.XPASS):
        defaults["artifact"] = make_artifact(id.model, id.opset)
        defaults["checks"] = (CheckResult(check="opset", status=Status.PASS),)
    return Record(**{**defaults, **fields})


def make_artifact(model: str, opset: int, **fields: Any) -> Artifact:
    defaults: dict[str, Any] = {
        "file": f"{model}/{opset}.onnx",
        "sha256": "0" * 64,
        "bytes": 1234,
        "ir_version": 10,
        "opset_imports": {"": opset},
        "nodes": 2,
        "parameters": 30,
        "operators": {"Conv": 1, "Relu": 1},
    }
    return Artifact(**{**defaults, **fields})


def key_by_text(table: Mapping[CellId, T]) -> dict[str, T]:
    """Return the table with the texts of its cells as keys, which are short to write."""
    return {str(cell): value for cell, value in table.items()}


def make_run(*records: Record, tools: dict[str, str] | None = None) -> RunRecord:
    return RunRecord(tools=TOOLS if tools is None else tools, records=records)


def make_spec(id: str = "alexnet", **fields: Any) -> ModelSpec:
    """Make a contract with one input, one output and a dynamic axis."""
    defaults: dict[str, Any] = {
        "id": id,
        "manifest": "manifests/vision.toml",
        "line": 1,
        "source": "models/vision.py:AlexNet",
        "opsets": (17, 18),
        "devices": ("cpu",),
        "inputs": (Input(name="image", shape=("batch", 3, 224, 224), at="args[0]"),),
        "outputs": (Output(name="logits", shape=("batch", 1000)),),
        "axes": (Axis(name="batch", example=3),),
        "timeout": 600.0,
    }
    return ModelSpec(**{**defaults, **fields})


def make_manifest(*specs: ModelSpec, root: str = "/project") -> Manifest:
    """Make a project with these models and a device of every name that they use."""
    names = dict.fromkeys(name for spec in specs for name in spec.devices)
    devices = tuple(Device(name=name, runtime="onnxruntime") for name in names)
    return Manifest(project=Project(root=root, devices=devices), models=specs)


def make_many(models: int) -> tuple[Manifest, RunRecord]:
    """Make a project of models with 13 cells each, and their results."""
    specs = [make_spec(f"model_{number}", opsets=tuple(range(9, 22))) for number in range(models)]
    status = [Status.PASS, Status.PASS, Status.FAIL, Status.XFAIL]
    records = [
        make_record(f"{spec.id}/{opset}/cpu", status[opset % 4], message="off", detail="x\n" * 30)
        for spec in specs
        for opset in spec.opsets
    ]
    return make_manifest(*specs), make_run(*records)
