"""Advice to use the other exporter, if its file keeps every promise of the contract."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from exporter.checks import RUNTIME_CHECKS, STRUCTURE_CHECKS
from exporter.checks.files.sample_files import SampleCache
from exporter.checks.protocol import CheckContext
from exporter.jobs.job_folder import JobFolder
from exporter.manifest import Device
from exporter.records.record import Status
from exporter.runtimes import open_session
from exporter.worker.diagnose.reexport import export_with_other_exporter
from exporter.worker.diagnose.time_limit import TimeLimitExceeded, limit_time
from exporter.worker.export.export_context import ExportContext


def advise_other_exporter(
    context: ExportContext, check_context: CheckContext, seconds: float
) -> tuple[str, ...]:
    """Return one line if the file of the other exporter passes all checks on all devices.

    Args:
        context: The model and the route that failed.
        check_context: The contract and PyTorch's outputs; its file need not exist.
        seconds: The time limit.
    """
    if not context.route.is_export:  # another file is a matter of its author
        return ()
    if context.spec.weights_are_inputs or not check_context.reference.samples:
        return ()
    exporter = "torchscript" if context.route.exporter == "dynamo" else "dynamo"
    opset = context.opset
    with suppress(TimeLimitExceeded), limit_time(seconds):
        try:
            passes = _export_and_check(context, check_context)
        except Exception:  # a failed diagnosis must not change the verdict
            return ()
        if passes:
            return (f'exporter = "{exporter}": its file passes all checks at opset {opset}',)
    return ()


def _export_and_check(context: ExportContext, check_context: CheckContext) -> bool:
    folder = check_context.folder
    with export_with_other_exporter(context, folder.path, converts_opset=True) as other:
        if other is None:
            return False
        scratch = JobFolder(other.path.parent)
        for sample in check_context.reference.promised_samples:
            scratch.sample(sample.index).symlink_to(folder.sample(sample.index))
        again = replace(check_context, folder=scratch, samples=SampleCache())
        return all(_passes(again, device) for device in context.job.devices)


def _passes(context: CheckContext, device: Device) -> bool:
    """Return True if the file passes all checks on a device."""
    context = replace(context, spec=context.spec.resolve_cell(context.opset, device.name))
    if any(check(context).status is not Status.PASS for check in STRUCTURE_CHECKS):
        return False
    session = open_session(context.path, device, context.kernels)
    return all(
        check(context, session, device.name).status is Status.PASS
        for check in RUNTIME_CHECKS
        if check.applies(context)
    )
