"""Advice to use the other exporter or a lower opset, if that file passes all checks."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from dataclasses import replace

import onnx

from exporter.checks import RUNTIME_CHECKS, STRUCTURE_CHECKS
from exporter.checks.files.sample_files import SampleCache
from exporter.checks.protocol import CheckContext
from exporter.jobs.job_folder import JobFolder
from exporter.manifest import Device
from exporter.planning.plan import FIRST_DYNAMO_OPSET
from exporter.records.record import Status
from exporter.runtimes import open_session
from exporter.worker.diagnose.reexport import (
    ReExport,
    export_with_other_exporter,
    repeat_export,
)
from exporter.worker.diagnose.time_limit import TimeLimitExceeded, limit_time
from exporter.worker.diagnose.value_graph import FileGraph
from exporter.worker.export.attempts import ExportContext


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
    folder = check_context.folder.path
    with suppress(TimeLimitExceeded), limit_time(seconds):
        other = export_with_other_exporter(context, folder, converts_opset=True)
        if _passes_all_checks(other, context, check_context):
            opset = context.opset
            return (f'exporter = "{exporter}": its file passes all checks at opset {opset}',)
    return ()


def advise_lower_opset(
    context: ExportContext, check_context: CheckContext, seconds: float
) -> tuple[str, ...]:
    """Return one line if the file passes at the last opset without its newest operator."""
    if context.program is None or context.spec.weights_are_inputs:
        return ()
    if not check_context.reference.samples:
        return ()
    used = {node.op_type for node in FileGraph(check_context.path).nodes if not node.domain}
    first: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.name in used and not schema.domain:
            version = first.get(schema.name, schema.since_version)
            first[schema.name] = min(version, schema.since_version)
    newest = max(first, key=lambda name: first[name], default="")
    opset = first.get(newest, 0) - 1
    if not FIRST_DYNAMO_OPSET <= opset < context.opset:
        return ()
    lower = replace(context, job=context.job.model_copy(update={"opset": opset}))
    with suppress(TimeLimitExceeded), limit_time(seconds):
        again = repeat_export(lower, check_context.folder.path)
        if _passes_all_checks(again, lower, replace(check_context, opset=opset)):
            return (f"opset {opset}, which has no {newest}: its file passes all checks",)
    return ()


def _passes_all_checks(
    export: AbstractContextManager[ReExport | None],
    context: ExportContext,
    check_context: CheckContext,
) -> bool:
    """Return True if a new file passes; no error of a diagnosis changes the verdict."""
    folder = check_context.folder
    try:
        with export as other:
            if other is None:
                return False
            scratch = JobFolder(other.path.parent)
            for sample in check_context.reference.promised_samples:
                scratch.sample(sample.index).symlink_to(folder.sample(sample.index))
            again = replace(check_context, folder=scratch, samples=SampleCache())
            return all(_passes(again, device) for device in context.job.devices)
    except Exception:
        return False


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
