"""What structure checks share: reading the file, and one result out of many findings.

In: a `CheckContext` and what to look for. Out: a `CheckResult` that names everything at once. Weights
that lie outside the file are never loaded here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx

from exporter.checks.files.read import Unreadable, read_model
from exporter.checks.protocol import CheckContext
from exporter.records.record import CheckResult, Status

Find = Callable[[CheckContext, onnx.ModelProto], Iterable[str]]


def run_structure_check(check: str, subject: CheckContext, find: Find) -> CheckResult:
    """Passes where `find` finds nothing in the file."""
    try:
        problems = tuple(find(subject, read_model(subject.path)))
    except Unreadable as unreadable:
        problems = (str(unreadable),)
    return CheckResult(
        check=check,
        status=Status.FAIL if problems else Status.PASS,
        message="; ".join(problems),
    )
