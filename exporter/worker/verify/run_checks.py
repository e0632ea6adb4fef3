"""The checks of one file, also of an existing one, and the record of each of its cells."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from exporter.checks import RUNTIME_CHECKS, SHORT_CHECKS, STRUCTURE_CHECKS
from exporter.checks.protocol import CheckedFile, RuntimeCheck
from exporter.checks.sample_checks import NOTE_PREFIX, describe_masked_samples
from exporter.checks.structure_checks import explain_missing_kernel
from exporter.core.check_table import DETERMINISM_CHECK, LOAD_CHECK
from exporter.manifest import Bound, Device, ModelSpec, select_bound
from exporter.records.record import (
    Artifact,
    Attempt,
    CellId,
    CheckResult,
    Record,
    Route,
    Stage,
    Status,
)
from exporter.runtimes import (
    LoadFailure,
    ProviderMissing,
    RuntimeProcessEnd,
    RuntimeUnavailable,
    Session,
    list_absent_files,
    open_session,
)

#: The key in `StageTimes` for PyTorch's reference outputs.
REFERENCE = "reference"


class StageTimes(dict[str, float]):
    """Wall time in seconds, by stage."""

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Add the time inside the context to a stage or to `REFERENCE`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self[str(stage)] = round(self.get(str(stage), 0.0) + seconds, 3)


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """The fields of a record that one check or the load decides."""

    status: Status
    stage: Stage | None
    check: str | None
    message: str


def run_structure_checks(checked: CheckedFile) -> tuple[CheckResult, ...]:
    """Return the results of all structure checks, even if the first one fails."""
    return tuple(_run_timed(check, checked) for check in STRUCTURE_CHECKS if check.applies(checked))


@dataclass(slots=True, kw_only=True)
class FileProof:
    """The proof of one file: what is known about it, and the verdicts of its devices.

    It needs no model: `verify` and a changed tolerance prove existing files.
    """

    spec: ModelSpec
    """The contract of all cells of the entry."""
    checked: CheckedFile
    """The file, with PyTorch's outputs."""
    route: Route
    log: str = ""
    attempts: tuple[Attempt, ...] = ()
    notes: tuple[str, ...] = ()
    artifact: Artifact | None = None
    structure: tuple[CheckResult, ...] = field(init=False)
    """The results of the structure checks."""
    callers: tuple[CheckResult, ...] = ()
    """The result of the programs that run the file; see `worker/callers`."""
    proved: dict[tuple[object, ...], str] = field(init=False, default_factory=dict)
    """The device that proved the promises of the file within these tolerances."""

    def __post_init__(self) -> None:
        self.structure = run_structure_checks(self.checked)

    def view(self, device: Device) -> CheckedFile:
        """Return the input of the checks on a device."""
        spec = self.spec.resolve_cell(self.checked.opset, device.name)
        return replace(self.checked, spec=spec)

    def of_other(self, path: Path) -> FileProof:
        """Return the proof of another file with the same promises, such as one before a pass."""
        return replace(self, checked=replace(self.checked, file=path))

    def prove(
        self, device: Device, times: StageTimes | None = None, *, is_full: bool = False
    ) -> Record:
        """Load the file on one device, run the checks that apply, and return the record.

        If an earlier device has proved the file within the same tolerance of each output, this one
        only has to compute the same numbers. If it does not, all checks run here too. A tighter
        tolerance needs all samples, and a looser one another check of its power.
        """
        checked = self.view(device)
        bounds = tuple(
            getattr(select_bound(checked.spec, output, device.name), key)
            for output in checked.spec.outputs
            for key in Bound.model_fields
        )
        is_full = is_full or device.proof == "full" or checked.spec.thorough
        run = _DeviceRun(
            checked=checked,
            device=device,
            times=StageTimes(times or {}),
            verdict=_find_verdict(self.structure, Stage.STRUCTURE),
            proved_on="" if is_full else self.proved.get(bounds, ""),
            notes=[note for note in self.notes if not note.startswith(NOTE_PREFIX)],
        )
        run.prove()
        verdict = run.verdict or _find_verdict(self.callers, Stage.PARITY)
        verdict = verdict or CheckVerdict(Status.PASS, None, None, "")
        if verdict.status is Status.PASS and not run.proved_on:
            self.proved.setdefault(bounds, device.name)
        return Record.from_fields(
            self,
            cell=CellId(model=checked.spec.id, opset=checked.opset, device=device.name),
            status=verdict.status,
            stage=verdict.stage,
            check=verdict.check,
            message=verdict.message,
            thorough=checked.spec.thorough,
            proved_on=run.proved_on,
            is_final=run.is_final,
            absent=run.absent,
            checks=(*self.structure, *run.results, *self.callers),
            notes=tuple(run.notes),
            runtime=device.environment.runtime_versions if device.environment else "",
            seconds=dict(run.times),
        )


@dataclass(slots=True, kw_only=True)
class _DeviceRun:
    """The load of one file on one device and its checks there, as far as they got."""

    checked: CheckedFile
    device: Device
    times: StageTimes
    verdict: CheckVerdict | None
    """The first bad result, that of the structure checks before all others.

    Only the end of the runtime's process replaces it.
    """
    proved_on: str
    """The earlier device that this one only has to agree with; "" if all checks have to run."""
    notes: list[str]
    results: tuple[CheckResult, ...] = ()
    is_final: bool = False
    absent: tuple[str, ...] = ()

    def prove(self) -> None:
        """Load the file, and run the checks if that succeeds."""
        stage = Stage.LOAD
        try:
            if (session := self._load()) is not None:
                stage = Stage.PARITY
                with self.times.measure(stage):
                    self._check(session)
                self.verdict = self.verdict or _find_verdict(self.results, stage)
        except RuntimeProcessEnd as error:
            status = Status.KILLED if error.is_killed else Status.CRASH
            self.verdict = CheckVerdict(status, stage, None, str(error))

    def _load(self) -> Session | None:
        """Return the session of the file; without one, there is a verdict."""
        try:
            with self.times.measure(Stage.LOAD):
                return open_session(self.checked.path, self.device, self.checked.kernels)
        except RuntimeUnavailable as error:
            self.is_final = self.verdict is None and isinstance(error, ProviderMissing)
            self.absent = list_absent_files(self.device) if self.verdict is None else ()
            unavailable = CheckVerdict(Status.UNAVAILABLE, Stage.LOAD, None, str(error))
            self.verdict = self.verdict or unavailable
        except LoadFailure as error:
            # If no kernel for an operator is installed, the file is neither right nor wrong.
            reason = explain_missing_kernel(self.checked, self.device)
            status = Status.UNAVAILABLE if reason else Status.ERROR
            message = reason or str(error)
            if self.verdict is not None and status is Status.ERROR:
                # The record has one stage, so this failure needs a name of its own.
                self.results = (CheckResult(check=LOAD_CHECK, status=status, message=message),)
            self.verdict = self.verdict or CheckVerdict(status, Stage.LOAD, None, message)
        return None

    def _check(self, session: Session) -> None:
        """Compare few samples if an earlier device proved the file; else run all checks."""
        if self.proved_on:
            short = replace(self.checked, is_short=True)
            self.results = _run_checks(SHORT_CHECKS, short, session, self.device)
            if all(result.status is Status.PASS for result in self.results):
                return
            self.proved_on = ""
        self.results = _run_checks(RUNTIME_CHECKS, self.checked, session, self.device)
        self.notes += describe_masked_samples(self.checked, session, self.device.name)


def _run_checks(
    checks: Sequence[RuntimeCheck], checked: CheckedFile, session: Session, device: Device
) -> tuple[CheckResult, ...]:
    return tuple(
        _run_timed(check, checked, session, device.name)
        for check in checks
        if check.applies(checked)
    )


def _run_timed(check: Callable[..., CheckResult], *arguments: object) -> CheckResult:
    start = time.perf_counter()
    result = check(*arguments)
    return result.model_copy(update={"seconds": round(time.perf_counter() - start, 3)})


def _find_verdict(results: Sequence[CheckResult], stage: Stage) -> CheckVerdict | None:
    """Return the verdict of the deciding check, or None if all passed.

    If a model is not deterministic, the file is not the cause of a difference. An inconclusive
    comparison does not hide a failed one.
    """
    not_passed = [result for result in results if result.status is not Status.PASS]
    if not not_passed:
        return None
    unstable = [result for result in not_passed if result.check == DETERMINISM_CHECK]
    failed = [result for result in not_passed if result.status is not Status.INCONCLUSIVE]
    first = (unstable or failed or not_passed)[0]
    return CheckVerdict(first.status, stage, first.check, first.message)
