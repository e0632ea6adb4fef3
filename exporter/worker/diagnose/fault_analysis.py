"""Whose fault a wrong output is, by changing one thing at a time on the sample that shows it.

In: the check that said no, the file and what the worker has at hand. Out: a `Blame`.

The order is from what costs nothing to what costs an export: PyTorch's own outputs, its float64
twin, ONNX Runtime without optimisations, another runtime, the same export again, the other one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from exporter.checks.protocol import CheckContext
from exporter.jobs.reference import Sample
from exporter.manifest import Device
from exporter.records.record import Blame, Culprit, Divergence
from exporter.runtimes import (
    LoadFailure,
    RunFailure,
    RuntimeUnavailable,
    Session,
    open_session,
)
from exporter.runtimes.values import OnnxValue
from exporter.worker.diagnose.locate_divergence import DivergenceLocator
from exporter.worker.diagnose.reexport import ReExport, export_with_other_exporter, repeat_export
from exporter.worker.diagnose.replay import (
    ReferenceSession,
    ReplayResult,
    SampleReplay,
    find_failing_sample,
    measure_distance,
)
from exporter.worker.diagnose.runtime_values import measure_error
from exporter.worker.diagnose.time_limit import TimeLimitExceeded, limit_time
from exporter.worker.export.export_context import ExportContext
from exporter.worker.process.failure import Failure

#: PyTorch within this factor of the file's own error: both are rounding.
_ROUNDING = 10.0
#: Two runtimes that compute the same wrong thing differ by rounding alone.
_SAME = 1e-3
_REFERENCE_SECONDS = 10.0
_CPU = ("CPUExecutionProvider",)
_PLAIN = "ONNX Runtime without optimization"
_SPECIFICATION = "onnx.reference"

Open = Callable[[Path], Session]


class FaultAnalysis:
    """One red cell under examination; what is found stays when the time is up."""

    def __init__(self, case: ExportContext, subject: CheckContext, device: Device) -> None:
        self._case = case
        self._subject = subject
        self._device = device
        self._evidence: list[str] = []
        self._first: Divergence | None = None
        self._culprit = Culprit.UNKNOWN
        self._sample: Sample | None = None
        self._trials: SampleReplay | None = None
        self._seen: ReplayResult | None = None

    def blame(self, check: str, seconds: float) -> Blame | None:
        """Finds out, within the time; None where the failure does not show again.

        Args:
            check: The check that said no.
            seconds: For all of it; what was found until then is told.
        """
        try:
            with limit_time(seconds):
                self._examine(check)
        except TimeLimitExceeded:
            self._evidence.append(f"ended after {seconds:.0f} s, before all was tried")
        except Exception as error:  # an aid to the reader must not cost the verdict
            self._evidence.append(f"the inquiry failed: {type(error).__name__}")
        if self._sample is None:
            return None
        return Blame(
            culprit=self._culprit,
            sample=self._sample.name,
            evidence=tuple(self._evidence),
            first=self._first,
            allowed=self._trials.allowed() if self._trials else (),
        )

    def _examine(self, check: str) -> None:
        session = self._load_mine(self._subject.path)
        self._sample = find_failing_sample(check, self._subject, session, self._device.name)
        sample = self._sample
        if sample is None:
            return
        if sample.error:
            self._culprit = Culprit.CONTRACT
            self._evidence.append(f"PyTorch itself refuses this input set: {sample.error}")
            return
        self._trials = SampleReplay(self._subject, self._device.name, sample)
        self._seen = self._trials.ask(session)
        self._evidence.append(f"{self._device.name} on '{sample.name}': {self._seen.text}")
        for step in (self._contract, self._precision, self._runtimes, self._exports):
            if step(session):
                return

    @property
    def _at(self) -> SampleReplay:
        if self._trials is None:
            raise RuntimeError("no sample is known to fail")
        return self._trials

    def _tell(self, who: str, answer: ReplayResult) -> None:
        is_same = answer == self._seen and not answer.is_numeric
        self._evidence.append(f"{who}: {'wrong in the same way' if is_same else answer.text}")

    def _contract(self, session: Session) -> bool:
        """PyTorch's own outputs against the contract."""
        names = [output.name for output in self._subject.spec.outputs]
        answer = self._at.ask(ReferenceSession(names, self._at.data))
        if answer.is_right:
            return False
        self._culprit = Culprit.PRECISION if answer.is_numeric else Culprit.CONTRACT
        self._evidence.append(f"PyTorch's own outputs: {answer.text}")
        return True

    def _precision(self, session: Session) -> bool:
        """PyTorch's error against float64 beside the file's."""
        outputs = _run(session, self._at)
        if outputs is None:
            return False
        pairs = []
        columns = zip(outputs, self._at.data.outputs, self._at.data.float64_outputs, strict=True)
        for index, (mine, theirs, wide) in enumerate(columns):
            if wide is not None and self._subject.reference.noise[index] is not None:
                pairs.append((measure_error(mine, wide), measure_error(theirs, wide)))
            elif measure_error(mine, theirs):
                return False  # it is wrong where float64 has no say
        if not pairs:
            return False
        file, torch = max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
        self._evidence.append(
            f"against float64 the file is off by {_about(file)} of the scale, "
            f"PyTorch by {_about(torch)}"
        )
        if any(mine > _ROUNDING * theirs for mine, theirs in pairs):
            return False
        self._culprit = Culprit.PRECISION
        return True

    def _runtimes(self, session: Session) -> bool:
        """The same file by other means."""
        trials = self._at
        mine = _run(session, trials)
        for name, culprit, load, seconds in self._others():
            try:
                with limit_time(seconds):
                    other = load(self._subject.path)
                    answer = trials.ask(other)
                    theirs = None if answer.is_right else _run(other, trials)
            except (TimeLimitExceeded, RuntimeUnavailable, LoadFailure) as problem:
                took = (
                    f"took more than {seconds:.0f} s"
                    if isinstance(problem, TimeLimitExceeded)
                    else ""
                )
                self._evidence.append(f"{name}: not asked: {took or problem}")
                continue
            self._tell(name, answer)
            if answer.is_right:
                self._culprit = culprit
                self._first = self._where().between_runtimes(self._load_mine, load, name)
                return True
            if culprit is Culprit.KERNEL and _agree(mine, theirs):
                self._culprit = Culprit.EXPORTER
                self._evidence.append(f"{self._device.name} and {name} agree with each other")
        return False

    def _others(self) -> list[tuple[str, Culprit, Open, float]]:
        cpu = Device(name="cpu", runtime="onnxruntime")
        found: list[tuple[str, Culprit, Open, float]] = []
        if self._device.runtime == "onnxruntime":
            found.append((_PLAIN, Culprit.OPTIMIZER, self._plainly, 60.0))
        if self._device.runtime != "onnxruntime" or self._device.providers[:1] not in ((), _CPU):
            found.append(
                (
                    "ONNX Runtime on the CPU",
                    Culprit.KERNEL,
                    lambda path: self._load(path, cpu),
                    60.0,
                )
            )
        if self._device.runtime != "reference":
            specification = Device(name="reference", runtime="reference")
            found.append(
                (
                    _SPECIFICATION,
                    Culprit.KERNEL,
                    lambda path: self._load(path, specification),
                    _REFERENCE_SECONDS,
                )
            )
        return found

    def _exports(self, session: Session) -> bool:
        """Other files of the same model."""
        folder = self._subject.folder.path
        self._declared(session)
        try:
            with repeat_export(self._case, folder) as again:
                answer = self._at.ask(self._load_mine(again.path))
                self._tell("the same export again", answer)
                if answer.is_right:
                    self._culprit = Culprit.FILE
                where = self._where(again)
                if where.capture_is_right(again):
                    self._first = where.against_pytorch(self._load_mine, again)
                else:
                    self._evidence.append("the program that torch.export captured is wrong too")
                    self._culprit = Culprit.EXPORTER
        except (Failure, LoadFailure, RuntimeUnavailable) as problem:
            self._evidence.append(f"the same export again: {problem}")
        if self._culprit is not Culprit.FILE:
            self._other_exporter(folder)
        return True

    def _declared(self, session: Session) -> None:
        """Whether the file is right for what it was exported with."""
        first = self._subject.reference.samples[0]
        if self._at.sample.kind != "declared" and not first.error:
            answer = SampleReplay(self._subject, self._device.name, first).ask(session)
            kept = ": it keeps something of the inputs it was exported with"
            self._evidence.append(
                f"on the declared inputs: {answer.text}{kept if answer.is_right else ''}"
            )

    def _other_exporter(self, folder: Path) -> None:
        name = "TorchScript" if self._case.route.exporter == "dynamo" else "dynamo"
        try:
            with export_with_other_exporter(self._case, folder) as other:
                if other is None:
                    return
                answer = self._at.ask(self._load_mine(other.path))
        except (Failure, LoadFailure, RuntimeUnavailable) as problem:
            self._evidence.append(f"{name} at the same opset: {problem}")
            return
        self._tell(f"{name} at the same opset", answer)
        if answer.is_right and self._culprit is Culprit.UNKNOWN:
            self._culprit = Culprit.EXPORTER

    def _where(self, again: ReExport | None = None) -> DivergenceLocator:
        return DivergenceLocator(
            case=self._case,
            path=self._subject.path,
            data=self._at.data,
            lines=again.lines if again else {},
        )

    def _load_mine(self, path: Path) -> Session:
        return self._load(path, self._device)

    def _load(self, path: Path, device: Device) -> Session:
        return open_session(path, device, self._subject.kernels)

    def _plainly(self, path: Path) -> Session:
        from exporter.runtimes.onnxruntime import OnnxRuntimeSession

        libraries = self._subject.kernels.libraries
        return OnnxRuntimeSession(path, self._device, optimized=False, libraries=libraries)


def _run(session: Session, trials: SampleReplay) -> list[OnnxValue] | None:
    """The outputs; None where there are none to compare."""
    try:
        outputs = session.run(trials.data.inputs)
    except RunFailure:
        return None
    return list(outputs) if len(outputs) == len(trials.data.outputs) else None


def _about(share: float) -> str:
    """In steps of ten: rounding differs between machines."""
    return f"up to 1e{math.ceil(math.log10(share))}" if 0 < share < np.inf else f"{share:g}"


def _agree(mine: list[OnnxValue] | None, theirs: list[OnnxValue] | None) -> bool:
    """Whether two runtimes are wrong alike; to fail on the same inputs is that too."""
    if mine is None or theirs is None:
        return mine is theirs
    return measure_distance(mine, theirs) < _SAME
