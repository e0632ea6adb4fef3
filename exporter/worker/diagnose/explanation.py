"""A red record with the reasons added.

In: a record or a `Failure` of a `ExportContext`. Out: the record with `blame`, `missing` and `advice`.
"""

from __future__ import annotations

from contextlib import suppress

from exporter.checks.protocol import CheckContext
from exporter.manifest import Device, ModelSpec
from exporter.records.record import (
    Blame,
    Culprit,
    Record,
    Stage,
    Status,
)
from exporter.worker.diagnose.fault_analysis import FaultAnalysis
from exporter.worker.diagnose.load_refusal import blame_load_failure
from exporter.worker.diagnose.missing_operators import find_missing_operators
from exporter.worker.diagnose.shape_advice import advise_on_failure, advise_on_program
from exporter.worker.diagnose.time_limit import TimeLimitExceeded, limit_time
from exporter.worker.export.export_context import ExportContext
from exporter.worker.process.failure import Failure

#: A cell may take this long, and all cells of a model together a quarter of the model's time.
_MOST_SECONDS = 30.0
_SHARE = 0.25


def diagnosis_seconds(spec: ModelSpec, cells: int) -> float:
    """How long the inquiry into one of `cells` red cells may take."""
    return min(_MOST_SECONDS, spec.timeout * _SHARE / max(cells, 1))


def explain_record(
    record: Record, case: ExportContext, subject: CheckContext, device: Device, seconds: float
) -> Record:
    """Adds whose fault it is, where a runtime or a check that runs the file says no."""
    if record.stage is Stage.LOAD and record.status is Status.ERROR:
        refused = blame_load_failure(subject, device, seconds)
        return record.model_copy(update={"blame": refused})
    if record.stage is not Stage.PARITY:
        return record
    if record.status is Status.INCONCLUSIVE and record.check == "determinism":
        blame = Blame(
            culprit=Culprit.MODEL, sample="declared", evidence=(subject.reference.unstable,)
        )
        return record.model_copy(update={"blame": blame})
    if record.status is not Status.FAIL or record.check is None:
        return record
    update: dict[str, object] = {
        "blame": FaultAnalysis(case, subject, device).blame(record.check, seconds)
    }
    if case.program is not None:
        update["advice"] = advise_on_program(case.program, case.spec)
    return record.model_copy(update=update)


def explain_failure(failure: Failure, case: ExportContext, seconds: float) -> Failure:
    """The same failure with all that is missing, and with what the manifest would have to say."""
    text = f"{failure.__cause__ or ''}\n{failure.message}\n{failure.detail}"
    if failure.stage is Stage.CAPTURE:
        failure.advice = advise_on_failure(text, case.model, case.spec)
    if failure.stage is Stage.CONVERT:
        with suppress(TimeLimitExceeded), limit_time(seconds):
            failure.missing = find_missing_operators(text, case)
    others = len(failure.missing) - 1
    if others > 0:
        failure.message += f" (and {others} more operator{'s' if others > 1 else ''} missing)"
    return failure
