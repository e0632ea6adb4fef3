"""The explanation of a red record or a failure."""

from __future__ import annotations

import re
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
from exporter.runtimes import (
    LoadFailure,
    RuntimeProcessEnd,
    RuntimeUnavailable,
    open_session,
)
from exporter.worker.diagnose.advice import (
    advise_lower_opset,
    advise_on_failure,
    advise_on_operators,
    advise_on_program,
    advise_other_exporter,
    find_obstacles,
)
from exporter.worker.diagnose.fault_analysis import analyze_fault
from exporter.worker.diagnose.missing_operators import find_missing_operators
from exporter.worker.diagnose.replay import SampleReplay
from exporter.worker.diagnose.time_limit import TimeLimitExceeded, limit_time
from exporter.worker.export.attempts import ExportContext
from exporter.worker.process.failure import Failure

#: The longest diagnosis of one cell, and the share of the model's time for all its cells.
_MAX_SECONDS = 30.0
_SHARE = 0.25
#: The structure checks that compare the sizes of the file with the declared ones.
_CHECKS_OF_SIZES = ("signature", "wellformed")
#: Faults that a file with other operators may not have.
_FAULTS = (Culprit.EXPORTER, Culprit.KERNEL, Culprit.OPTIMIZER, Culprit.UNKNOWN)
_DATA_DEPENDENT = re.compile(r"GuardOnDataDependent|[Dd]ata-dependent (branching|expression)")
_BRANCH = (
    "a condition depends on values: use torch.where or torch.cond; or keep the branch of the "
    'example by capture = "draft"; or keep both by exporter = "torchscript" and capture = "script"'
)
_SPECIFICATION = Device(name="reference", runtime="reference")
_SPECIFICATION_SECONDS = 10.0


def diagnosis_seconds(spec: ModelSpec, cells: int) -> float:
    """Return the time limit for the diagnosis of one of `cells` red cells."""
    return min(_MAX_SECONDS, spec.timeout * _SHARE / max(cells, 1))


def explain_record(
    record: Record,
    context: ExportContext,
    check_context: CheckContext,
    device: Device,
    seconds: float,
) -> Record:
    """Add the culprit, if a runtime rejects the file or a check that runs the file failed."""
    try:
        return _explain(record, context, check_context, device, seconds)
    except RuntimeProcessEnd:  # an experiment ended the process of the device's environment
        return record


def _explain(
    record: Record,
    context: ExportContext,
    check_context: CheckContext,
    device: Device,
    seconds: float,
) -> Record:
    if record.stage is Stage.LOAD and record.status is Status.ERROR:
        blame = blame_load_failure(check_context, device, seconds)
        lower = advise_lower_opset(context, check_context, seconds)
        return record.model_copy(update={"blame": blame, "advice": lower})
    if record.stage is Stage.STRUCTURE and record.status is Status.FAIL:
        return _explain_structure(record, context, check_context, seconds)
    if record.stage is not Stage.PARITY:
        return record
    if record.status is Status.INCONCLUSIVE and record.check == "determinism":
        unstable = check_context.reference.unstable
        blame = Blame(culprit=Culprit.MODEL, sample="declared", evidence=(unstable,))
        return record.model_copy(update={"blame": blame})
    if record.status is not Status.FAIL or record.check is None:
        return record
    blame = analyze_fault(context, check_context, device, record.check, seconds)
    advice: tuple[str, ...] = ()
    if blame is not None and blame.culprit is Culprit.EXPORTER:
        advice = advise_other_exporter(context, check_context, seconds)
    if blame is not None and blame.culprit in _FAULTS:
        advice += advise_lower_opset(context, check_context, seconds)
    if context.program is not None and blame is not None:
        samples = check_context.reference.samples
        sizes = next(each.axes for each in samples if each.name == blame.sample)
        advice += advise_on_program(context.program, context.spec, sizes)
    return record.model_copy(update={"blame": blame, "advice": advice})


def _explain_structure(
    record: Record, context: ExportContext, check_context: CheckContext, seconds: float
) -> Record:
    """Add the contract as the culprit, or else advice to use the other exporter."""
    if record.check in _CHECKS_OF_SIZES and (blame := blame_contract(check_context)):
        return record.model_copy(update={"blame": blame})
    advice = advise_other_exporter(context, check_context, seconds)
    return record.model_copy(update={"advice": advice})


def explain_failure(
    failure: Failure,
    context: ExportContext,
    seconds: float,
    check_context: CheckContext | None = None,
) -> Failure:
    """Add all missing operators and advice for the manifest to a failure.

    Args:
        failure: The failure of a capture or a conversion.
        context: The model and its route.
        seconds: The time limit.
        check_context: PyTorch's outputs, to try the other exporter if the capture failed.
    """
    text = f"{failure.__cause__ or ''}\n{failure.message}\n{failure.detail}"
    if failure.stage is Stage.CAPTURE:
        samples = check_context.reference.samples if check_context is not None else ()
        failure.advice = advise_on_failure(text, context.model, context.spec, samples)
        failure.advice += (_BRANCH,) if _DATA_DEPENDENT.search(text) else ()
        if check_context is not None:
            other = advise_other_exporter(context, check_context, seconds)
            failure.advice = (*other, *failure.advice)
        failure.obstacles = find_obstacles(text, context, seconds)
    if failure.stage is Stage.CONVERT:
        with suppress(TimeLimitExceeded), limit_time(seconds):
            failure.missing = find_missing_operators(text, context)
        failure.advice = (*failure.advice, *advise_on_operators(failure.missing))
    others = len(failure.missing) - 1
    if others > 0:
        failure.message += f" (and {others} more operator{'s' if others > 1 else ''} missing)"
    return failure


def blame_contract(check_context: CheckContext) -> Blame | None:
    """Return the contract as the culprit if PyTorch rejects a promised input set, else None.

    A file with fixed sizes is right if PyTorch accepts no other sizes.
    """
    for sample in check_context.reference.promised_samples:
        if sample.error:
            problem = f"PyTorch itself rejects this input set: {sample.error}"
            return Blame(culprit=Culprit.CONTRACT, sample=sample.name, evidence=(problem,))
    return None


def blame_load_failure(check_context: CheckContext, device: Device, seconds: float) -> Blame | None:
    """Return the culprit if a runtime rejects a file.

    The reference evaluator of ONNX runs the file on the declared inputs. If its outputs are right,
    the file is right and the runtime lacks something.

    Returns:
        None if the runtime is the reference evaluator, or if there are no outputs to compare.
    """
    declared = check_context.reference.samples[:1]
    if device.runtime == "reference" or not declared or declared[0].error:
        return None
    limit = min(seconds, _SPECIFICATION_SECONDS)
    culprit = Culprit.UNKNOWN
    try:
        with limit_time(limit):
            session = open_session(check_context.path, _SPECIFICATION)
            result = SampleReplay(check_context, device.name, declared[0]).compare(session)
        text = result.text
        if result.is_right:
            culprit = Culprit.RUNTIME
        elif result.is_numeric:
            culprit = Culprit.EXPORTER
    except TimeLimitExceeded:
        text = f"took more than {limit:.0f} s"
    except (LoadFailure, RuntimeUnavailable) as error:
        text = f"rejects the file too: {error}"
    except Exception as error:  # a failed diagnosis must not change the verdict
        text = f"failed: {type(error).__name__}"
    return Blame(culprit=culprit, sample=declared[0].name, evidence=(f"onnx.reference: {text}",))
