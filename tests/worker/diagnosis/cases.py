"""Exports of small models and the diagnosis of one cell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from exporter.checks.protocol import CheckedFile
from exporter.jobs import JobFolder, OpsetJob
from exporter.manifest import Device, ModelSpec
from exporter.records.record import Blame, Record, Route
from exporter.worker.diagnosis.explanation import Explanation, explain_failure, explain_record
from exporter.worker.export.attempts import OpsetExport, capture_program
from exporter.worker.export.convert import convert_module, convert_program
from exporter.worker.export.write_onnx import write_artifact
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure
from exporter.worker.reference.reference_run import compute_reference
from exporter.worker.verify.run_checks import FileProof
from tests.worker.contracts import ROOT, declare_input, declare_output, make_contract
from tests.worker.graphs import draw_declared

CPU = Device(name="cpu", runtime="onnxruntime")
REFERENCE = Device(name="reference", runtime="reference")


def wrong_contract(net: str, **changes: object) -> ModelSpec:
    """Return a contract of `x [batch, 4]` and `y [batch, 4]` for a net of `wrong_nets.py`."""
    values: dict[str, object] = {
        "source": f"diagnosis/wrong_nets.py:{net}",
        "inputs": (declare_input(),),
        "outputs": (declare_output("y", "batch", 4),),
    }
    return make_contract(net, **(values | changes))


def case_of(spec: ModelSpec, opset: int, *, dynamo: bool, capture: bool = True) -> OpsetExport:
    """Return the context without a file; `capture` adds a program under dynamo."""
    model = load_model(spec, ROOT)
    inputs = draw_declared(spec)
    route = (
        Route(exporter="dynamo", capture="export", reason="")
        if dynamo
        else Route(exporter="torchscript", capture="trace", reason="")
    )
    program = capture_program(model, spec, inputs, strict=False) if dynamo and capture else None
    job = OpsetJob(opset=opset, route=route, devices=(CPU,))
    return OpsetExport(model=model, inputs=inputs, spec=spec, job=job, root=ROOT, program=program)


def check_export(
    case: OpsetExport,
    folder: Path,
    device: Device = CPU,
    damage: Callable[[Path], None] | None = None,
) -> Record:
    """Export, damage the file if requested, check it and explain the record."""
    subject = write_export(case, folder)
    if damage:
        damage(subject.path)
    record = FileProof(spec=subject.spec, checked=subject, route=case.route).prove(device)
    fields = join_fields(explain_record(record, case, subject, device))
    return record.model_copy(update=fields)


def explain(failure: Failure, case: OpsetExport) -> dict[str, Any]:
    return join_fields(explain_failure(failure, case))


def join_fields(explanation: Explanation) -> dict[str, Any]:
    """Return the last value of each field."""
    return {name: value for fields in explanation for name, value in fields.items()}


def write_export(case: OpsetExport, folder: Path) -> CheckedFile:
    job = JobFolder(folder)
    spec, opset = case.spec, case.opset
    reference = compute_reference(case.model, spec, ROOT, job)
    if case.program is not None:
        graph = convert_program(case.program, spec, opset, folder, case.decompositions)
    else:
        graph, _ = convert_module(case.model, spec, case.inputs, opset, folder / "s" / "a.onnx")
    write_artifact(graph, spec, opset, job, {})
    return CheckedFile(folder=job, opset=opset, spec=spec, reference=reference)


def blame_of(record: Record) -> Blame:
    assert record.blame is not None, record
    return record.blame
