"""The checks of one file, and the record of each of its cells.

In: a written file and its contract. Out: one `Record` per device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from exporter.checks import RUNTIME_CHECKS, STRUCTURE_CHECKS
from exporter.checks.numerical.determinism import DeterminismCheck
from exporter.checks.protocol import CheckContext
from exporter.checks.structural.domains import explain_missing_kernel
from exporter.manifest import Device
from exporter.records.record import (
    Artifact,
    CellId,
    CheckResult,
    Record,
    Route,
    Stage,
    Status,
)
from exporter.runtimes import LoadFailure, RuntimeUnavailable, open_session

#: In `StageTimes`, what PyTorch took to say what is right.
REFERENCE = "reference"


class StageTimes(dict[str, float]):
    """Wall time by stage."""

    @contextmanager
    def of(self, stage: str) -> Iterator[None]:
        """Adds the time spent inside to a stage, or to `REFERENCE`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self[str(stage)] = round(self.get(str(stage), 0.0) + spent, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFields:
    """What the records of one file share."""

    route: Route
    log: str
    notes: tuple[str, ...] = ()
    artifact: Artifact | None = None


def run_structure_checks(subject: CheckContext) -> tuple[CheckResult, ...]:
    """Every structure check of the file; all run, whatever the first says."""
    return tuple(_timed(check, subject) for check in STRUCTURE_CHECKS)


def check_on_device(
    device: Device,
    subject: CheckContext,
    structure: Sequence[CheckResult],
    common: SharedFields,
    seconds: StageTimes,
) -> Record:
    """Loads the file on one device and holds it against PyTorch."""
    cell = CellId(model=subject.spec.id, opset=subject.opset, device=device.name)
    outcome = _first_no(structure, Stage.STRUCTURE)
    parity: tuple[CheckResult, ...] = ()
    try:
        with seconds.of(Stage.LOAD):
            session = open_session(subject.path, device, subject.kernels)
    except RuntimeUnavailable as missing:
        outcome = outcome or CheckVerdict(Status.UNAVAILABLE, Stage.LOAD, None, str(missing))
    except LoadFailure as refused:
        outcome = outcome or _refused(subject, device, str(refused))
    else:
        with seconds.of(Stage.PARITY):
            parity = tuple(
                _timed(check, subject, session, device.name)
                for check in RUNTIME_CHECKS
                if check.applies(subject)
            )
        outcome = outcome or _first_no(parity, Stage.PARITY)
    outcome = outcome or CheckVerdict(Status.PASS, None, None, "")
    return Record(
        cell=cell,
        status=outcome.status,
        stage=outcome.stage,
        check=outcome.check,
        message=outcome.message,
        thorough=subject.spec.thorough,
        route=common.route,
        artifact=common.artifact,
        checks=(*structure, *parity),
        notes=common.notes,
        log=common.log,
        seconds=dict(seconds),
    )


def _timed(check: Callable[..., CheckResult], *arguments: object) -> CheckResult:
    start = time.perf_counter()
    result = check(*arguments)
    return result.model_copy(update={"seconds": round(time.perf_counter() - start, 3)})


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    status: Status
    stage: Stage | None
    check: str | None
    message: str


def _refused(subject: CheckContext, device: Device, why: str) -> CheckVerdict:
    """An operator that nothing here could run is no fault of the file, and proves nothing."""
    if lacking := explain_missing_kernel(subject, device):
        return CheckVerdict(Status.UNAVAILABLE, Stage.LOAD, None, lacking)
    return CheckVerdict(Status.ERROR, Stage.LOAD, None, why)


def _first_no(results: Sequence[CheckResult], stage: Stage) -> CheckVerdict | None:
    """The check that decides.

    Where a model differs from itself, the file is not to blame for any difference. A comparison
    that could not have failed is no excuse for one that did.
    """
    against = [result for result in results if result.status is not Status.PASS]
    if not against:
        return None
    unstable = [result for result in against if result.check == DeterminismCheck.name]
    failed = [result for result in against if result.status is not Status.INCONCLUSIVE]
    first = (unstable or failed or against)[0]
    return CheckVerdict(first.status, stage, first.check, first.message)
