"""`wellformed`: the file is valid ONNX, its types and shapes agree, and its data is all there.

The set loads after it was copied to another folder: every location is a name inside the folder of
the file, is no link, and its bytes are all there, so that nothing depends on where the folder is.
And it is another folder that every file is loaded from: the checks run in the private folder of
the job, which is renamed into place when they are done.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import ModelProto

from exporter.checks.files.external_data import external_data_problems, misplaced
from exporter.checks.protocol import CheckContext
from exporter.checks.structural.run_structure import run_structure_check
from exporter.core.sanitize import one_line, truncate
from exporter.records.record import CheckResult

NAME = "wellformed"
_LENGTH = 300


def check_wellformed(subject: CheckContext) -> CheckResult:
    """The full checker from the path, strict shape inference, and external data."""
    return run_structure_check(NAME, subject, _find)


def _find(subject: CheckContext, model: ModelProto) -> Iterator[str]:
    outside = tuple(external_data_problems(model, subject.path.parent))
    if outside:
        yield from outside  # the checker would say the same in other words
        return
    yield from misplaced(model, subject.spec.options.get("external_data"))
    try:
        # From the path, so that models beyond protobuf's 2 GB pass; includes strict inference.
        onnx.checker.check_model(str(subject.path), full_check=True)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        ValueError,
        RuntimeError,
    ) as error:
        yield _shortened(error, subject)


def _shortened(error: Exception, subject: CheckContext) -> str:
    return truncate(one_line(str(error).replace(f"{subject.path.parent}/", "")), _LENGTH)
