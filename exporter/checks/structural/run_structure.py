"""The common part of all structure checks: read the file and join the problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx

from exporter.checks.files.model_file import UnreadableModel, read_model
from exporter.checks.protocol import CheckContext
from exporter.records.record import CheckResult, Status

FindProblems = Callable[[CheckContext, onnx.ModelProto], Iterable[str]]


def run_structure_check(check: str, context: CheckContext, find: FindProblems) -> CheckResult:
    """Return a result that passes if `find` finds no problem in the file."""
    try:
        problems = tuple(find(context, read_model(context.path)))
    except UnreadableModel as error:
        problems = (str(error),)
    return CheckResult(
        check=check,
        status=Status.FAIL if problems else Status.PASS,
        message="; ".join(problems),
    )
