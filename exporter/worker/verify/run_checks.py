"""The checks of one file, and the record of each of its cells."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from exporter.checks import RUNTIME_CHECKS, SHORT_CHECKS, STRUCTURE_CHECKS
from exporter.checks.protocol import CheckContext, RuntimeCheck
from exporter.checks.runtime_checks import NOTE_PREFIX, DeterminismCheck, describe_masked_samples
from exporter.checks.structure_checks import explain_missing_kernel
from exporter.core.known_names import LOAD_CHECK
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
    RuntimeProcessEnd,
    RuntimeUnavailable,
    Session,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFields:
    """The common fields of the records of one file."""

    route: Route
    log: str
    attempts: tuple[Attempt, ...] = ()
    notes: tuple[str, ...] = ()
    artifact: Artifact | None = None


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """The fields of a record that one check or the load decides."""

    status: Status
    stage: Stage | None
    check: str | None
    message: str


def run_structure_checks(context: CheckContext) -> tuple[CheckResult, ...]:
    """Return the results of all structure checks, even if the first one fails."""
    return tuple(_run_timed(check, context) for check in STRUCTURE_CHECKS)


def check_on_device(
    device: Device,
    context: CheckContext,
    structure: Sequence[CheckResult],
    shared: SharedFields,
    times: StageTimes,
    proved_on: str = "",
) -> Record:
    """Load the file on one device, run the checks that apply, and return the record.

    Args:
        device: The runtime and its device.
        context: The file, its contract for this device, and PyTorch's reference.
        structure: The results of the structure checks.
        shared: The common fields of the records of the file.
        times: Receives the times of the stages.
        proved_on: The device that proved the promises of the file within the same tolerances. Then
            this device only has to compute the same numbers; if it does not, all checks run here
            too.
    """
    if device.proof == "full" or context.spec.thorough:
        proved_on = ""
    verdict = _find_verdict(structure, Stage.STRUCTURE)
    results: tuple[CheckResult, ...] = ()
    notes = [note for note in shared.notes if not note.startswith(NOTE_PREFIX)]
    try:
        with times.measure(Stage.LOAD):
            session = open_session(context.path, device, context.kernels)
    except RuntimeUnavailable as error:
        verdict = verdict or CheckVerdict(Status.UNAVAILABLE, Stage.LOAD, None, str(error))
    except LoadFailure as error:
        # If no kernel for an operator is installed, the file is neither right nor wrong.
        reason = explain_missing_kernel(context, device)
        status = Status.UNAVAILABLE if reason else Status.ERROR
        load = CheckVerdict(status, Stage.LOAD, None, reason or str(error))
        if verdict is not None and status is Status.ERROR:
            # The record has one stage, so this failure needs a name of its own.
            results = (CheckResult(check=LOAD_CHECK, status=status, message=load.message),)
        verdict = verdict or load
    except RuntimeProcessEnd as error:
        verdict = _describe_end(error, Stage.LOAD)
    else:
        try:
            with times.measure(Stage.PARITY):
                if proved_on:
                    short = replace(context, is_short=True)
                    results = _run_checks(SHORT_CHECKS, short, session, device)
                    if any(result.status is not Status.PASS for result in results):
                        proved_on = ""
                if not proved_on:
                    results = _run_checks(RUNTIME_CHECKS, context, session, device)
                    notes += describe_masked_samples(context, session, device.name)
            verdict = verdict or _find_verdict(results, Stage.PARITY)
        except RuntimeProcessEnd as error:
            verdict = _describe_end(error, Stage.PARITY)
    verdict = verdict or CheckVerdict(Status.PASS, None, None, "")
    return Record(
        cell=CellId(model=context.spec.id, opset=context.opset, device=device.name),
        status=verdict.status,
        stage=verdict.stage,
        check=verdict.check,
        message=verdict.message,
        thorough=context.spec.thorough,
        proved_on=proved_on,
        route=shared.route,
        attempts=shared.attempts,
        artifact=shared.artifact,
        checks=(*structure, *results),
        notes=tuple(notes),
        log=shared.log,
        runtime=device.environment.runtime_versions if device.environment else "",
        seconds=dict(times),
    )


class FileProver:
    """The checks of one file on its devices, one after the other."""

    def __init__(self, spec: ModelSpec, context: CheckContext, shared: SharedFields) -> None:
        """Run the structure checks; `spec` is the contract of all cells of the entry."""
        self.context = context
        self._spec, self._shared = spec, shared
        self._structure = run_structure_checks(context)
        self._proofs: dict[tuple[object, ...], str] = {}

    def check(
        self, device: Device, times: StageTimes | None = None, *, is_full: bool = False
    ) -> tuple[Record, CheckContext]:
        """Return the record of one device, and the input of its checks.

        A device gets the short proof only if an earlier one has the same tolerance of each output.
        A tighter one needs all samples, and a looser one another check of its power.
        """
        spec = self._spec.resolve_cell(self.context.opset, device.name)
        context = replace(self.context, spec=spec)
        bounds = tuple(
            getattr(select_bound(spec, output, device.name), key)
            for output in spec.outputs
            for key in Bound.model_fields
        )
        proved_on = "" if is_full else self._proofs.get(bounds, "")
        times = StageTimes() if times is None else times
        record = check_on_device(device, context, self._structure, self._shared, times, proved_on)
        if record.status is Status.PASS and not record.proved_on:
            self._proofs.setdefault(bounds, device.name)
        return record, context


def _run_checks(
    checks: Sequence[RuntimeCheck], context: CheckContext, session: Session, device: Device
) -> tuple[CheckResult, ...]:
    return tuple(
        _run_timed(check, context, session, device.name)
        for check in checks
        if check.applies(context)
    )


def _describe_end(error: RuntimeProcessEnd, stage: Stage) -> CheckVerdict:
    """Return the verdict if the process of the device's environment ended."""
    status = Status.KILLED if error.is_killed else Status.CRASH
    return CheckVerdict(status, stage, None, str(error))


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
    unstable = [result for result in not_passed if result.check == DeterminismCheck.name]
    failed = [result for result in not_passed if result.status is not Status.INCONCLUSIVE]
    first = (unstable or failed or not_passed)[0]
    return CheckVerdict(first.status, stage, first.check, first.message)
