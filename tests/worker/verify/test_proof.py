"""All stages from a model to its record, by both exporters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import onnx
import pytest

from exporter.checks.protocol import CheckedFile
from exporter.jobs import JobFolder, OpsetJob
from exporter.manifest import (
    Axis,
    Device,
    Expectation,
    ModelSpec,
    Override,
    RuntimeEnvironment,
    Tolerance,
)
from exporter.planning.plan import apply_expectations
from exporter.records.record import Record, Route, Stage, Status
from exporter.runtimes import Kernels, RuntimeProcessEnd, Session
from exporter.runtimes.session import Array
from exporter.worker.export.write_onnx import write_artifact
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure
from exporter.worker.reference.reference_run import compute_reference
from exporter.worker.verify import run_checks
from exporter.worker.verify.run_checks import FileProof
from tests.traps.prove import export as export_job
from tests.unit.checks.contexts import declared
from tests.unit.checks.contexts import subject as double_subject
from tests.worker.contracts import ROOT, declare_output, make_contract
from tests.worker.graphs import convert

CPU = Device(name="cpu", runtime="onnxruntime", providers=("CPUExecutionProvider",))
BOTH = pytest.mark.parametrize(("opset", "exporter"), [(13, "torchscript"), (18, "dynamo")])


def export_and_check(spec: ModelSpec, folder: Path, opset: int, exporter: str) -> Record:
    return check_file(export(spec, folder, opset, exporter), exporter)


def export(spec: ModelSpec, folder: Path, opset: int, exporter: str) -> CheckedFile:
    job = JobFolder(folder)
    reference = compute_reference(load_model(spec, ROOT), spec, ROOT, job)
    graph = convert(spec, opset, folder, dynamo=exporter == "dynamo")
    write_artifact(graph, spec, opset, job, {})
    return CheckedFile(folder=job, opset=opset, spec=spec, reference=reference)


def check_file(subject: CheckedFile, exporter: str) -> Record:
    route = Route.model_validate({"exporter": exporter, "capture": "export", "reason": "asked"})
    return FileProof(spec=subject.spec, checked=subject, route=route).prove(CPU)


@BOTH
def test_scalars_are_inputs_and_outputs(opset: int, exporter: str, tmp_path: Path) -> None:
    spec = make_contract("ScaledMean", "x [batch, 4], k [] -> total []")
    record = export_and_check(spec, tmp_path, opset, exporter)
    assert (record.status, record.message) == (Status.PASS, "")
    assert [result.check for result in record.checks] == [
        *("opset", "wellformed", "signature"),
        *("placement", "determinism", "power", "parity", "axes", "values"),
    ]
    declared_as_a_row = spec.model_copy(update={"outputs": (declare_output("total", 1),)})
    with pytest.raises(Failure, match=r"declared \[1\], PyTorch gives \[\]"):
        export_and_check(declared_as_a_row, tmp_path / "row", opset, exporter)


def test_a_foreseen_check_does_not_hide_a_failed_load(tmp_path: Path) -> None:
    spec = make_contract("ScaledMean", "x [batch, 4], k [] -> total []")
    export_and_check(spec, tmp_path, 13, "torchscript")
    folder = JobFolder(tmp_path)
    graph = onnx.load(folder.model(13))
    graph.graph.node[0].op_type = "Unknown"
    onnx.save(graph, folder.model(13))
    reference = compute_reference(load_model(spec, ROOT), spec, ROOT, folder)
    subject = CheckedFile(folder=folder, opset=13, spec=spec, reference=reference)
    record = check_file(subject, "torchscript")
    assert (record.check, record.failed_checks) == ("wellformed", ("wellformed", "load"))

    def judge(*checks: str) -> Status:
        expected = (Expectation(checks=checks, reason="known"),)
        changed = spec.model_copy(update={"expect": expected})
        return apply_expectations(changed, record).status

    assert judge("wellformed") is Status.FAIL
    assert judge("wellformed", "load") is Status.XFAIL


class EndingSession:
    """A session whose process ends at the first run."""

    output_names = ("y",)
    placement = None

    def __init__(self, *, is_killed: bool) -> None:
        self.is_killed = is_killed

    def run(self, inputs: object) -> NoReturn:
        raise RuntimeProcessEnd("the runtime process died", is_killed=self.is_killed)


@pytest.mark.parametrize(("is_killed", "status"), [(False, Status.CRASH), (True, Status.KILLED)])
def test_the_end_of_a_runtime_process_is_the_result_of_its_cell(
    is_killed: bool, status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = double_subject(tmp_path, declared(tmp_path))
    session = EndingSession(is_killed=is_killed)
    monkeypatch.setattr(run_checks, "open_session", lambda *_: session)
    environment = RuntimeEnvironment(
        name="old", requirements=("onnxruntime",), packages={"onnxruntime": "1.17.3"}
    )
    device = CPU.model_copy(update={"environment": environment})
    monkeypatch.setattr(run_checks, "STRUCTURE_CHECKS", ())
    route = Route(exporter="dynamo", capture="export", reason="")
    proof = FileProof(spec=subject.spec, checked=subject, route=route)
    record = proof.prove(device)
    assert (record.status, record.stage) == (status, Stage.PARITY)
    assert record.message == "the runtime process died"
    assert record.runtime == "onnxruntime 1.17.3"
    assert proof.prove(CPU).runtime == ""


class BrokenKernel:
    """A session with a kernel that returns other numbers for some inputs."""

    def __init__(self, session: Session, is_broken: Callable[[Array], bool]) -> None:
        self.session, self.is_broken, self.runs = session, is_broken, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.session, name)

    def run(self, inputs: dict[str, Array]) -> list[Array]:
        self.runs += 1
        (output,) = self.session.run(inputs)
        return [output * np.float32(1.02) if self.is_broken(inputs["x"]) else output]


@pytest.mark.parametrize(
    ("is_broken", "short", "full"),
    [
        (lambda _: False, Status.PASS, Status.PASS),
        (lambda _: True, Status.FAIL, Status.FAIL),
        (lambda x: len(x) > 3, Status.FAIL, Status.FAIL),
        (lambda x: bool((x == 0).any()), Status.FAIL, Status.FAIL),
        (lambda x: len(x) == 1, Status.FAIL, Status.FAIL),
        (lambda x: len(x) == 40, Status.FAIL, Status.FAIL),
        (lambda x: len(x) == 2, Status.PASS, Status.FAIL),
    ],
    ids=["right", "all values", "sizes", "zeros", "smallest", "largest", "a size of the full one"],
)
def test_a_further_device_has_the_short_proof(
    is_broken: Callable[[Array], bool],
    short: Status,
    full: Status,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    axes = (Axis(name="batch", example=3, max=40),)
    subject = export(make_contract("Affine", axes=axes), tmp_path, 13, "torchscript")
    route = Route(exporter="torchscript", capture="trace", reason="")
    proof = FileProof(spec=subject.spec, checked=subject, route=route)
    first = proof.prove(CPU)
    assert (first.status, first.proved_on) == (Status.PASS, "")
    real_session = run_checks.open_session

    def prove(kind: str) -> tuple[Record, int]:
        session = BrokenKernel(real_session(subject.path, CPU, subject.kernels), is_broken)
        monkeypatch.setattr(run_checks, "open_session", lambda *_: session)
        device = CPU.model_copy(update={"name": "other", "proof": kind})
        return proof.prove(device), session.runs

    (record, runs), (whole, all_runs) = prove("short"), prove("full")
    assert (record.status, whole.status) == (short, full)
    assert whole.proved_on == ""
    if short is Status.PASS:
        assert (record.proved_on, runs) == ("cpu", 5)
        assert all_runs == len(subject.reference.samples) > 5
    else:  # all checks ran on this device, too
        names = [result.check for result in whole.checks]
        assert [result.check for result in record.checks] == names
        assert record.proved_on == ""


@pytest.mark.parametrize(
    ("device", "atol", "status"),
    [
        ("cpu", None, Status.PASS),
        ("cpu", 1e-3, Status.FAIL),
        ("other", 1e-3, Status.FAIL),
        ("*", 1e-3, Status.PASS),
    ],
    ids=["the default", "a looser proof", "a looser further device", "the same bound"],
)
def test_a_short_proof_needs_the_tolerance_of_the_proving_device(
    device: str, atol: float | None, status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proof within another bound is no proof: the check of its power had another result, too."""
    override = Override(device=device, tolerance=Tolerance(atol=atol) if atol else None)
    spec = make_contract("Affine", overrides=(override,), opsets=(13,))
    real_session = run_checks.open_session

    def open_session(path: Path, used: Device, kernels: Kernels) -> Session:
        session = real_session(path, CPU, kernels)
        is_other = used.name == "other"
        return BrokenKernel(session, lambda x: len(x) == 2) if is_other else session  # type: ignore[return-value]

    monkeypatch.setattr(run_checks, "open_session", open_session)
    route = Route(exporter="torchscript", capture="trace", reason="")
    devices = (CPU, CPU.model_copy(update={"name": "other"}))
    job = OpsetJob(opset=13, route=route, devices=devices)
    first, further = export_job(spec, tmp_path / "job", opsets=(job,), root=ROOT)
    assert (first.status, first.proved_on) == (Status.PASS, "")
    assert (further.status, further.proved_on) == (status, "cpu" if status is Status.PASS else "")
