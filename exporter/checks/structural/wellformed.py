"""The check `wellformed`: the file is valid ONNX with consistent types and complete data.

The files still load after they were copied to another folder: every location is the name of a
complete file inside the folder, and not a link. Every file is in fact loaded from another folder.
The checks run in the private folder of the job, which is renamed when they are done.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import ModelProto

from exporter.checks.files.model_file import find_external_data_problems, find_misplaced_weights
from exporter.checks.protocol import CheckContext, run_structure_check
from exporter.core.text import join_lines, truncate
from exporter.records.record import CheckResult

NAME = "wellformed"
#: Characters of a checker's message.
_MAX_LENGTH = 300


def check_wellformed(context: CheckContext) -> CheckResult:
    """Run the full checker on the path, strict shape inference and the data checks."""
    return run_structure_check(NAME, context, _find_problems)


def _find_problems(context: CheckContext, model: ModelProto) -> Iterator[str]:
    data_problems = tuple(find_external_data_problems(model, context.path.parent))
    if data_problems:
        yield from data_problems  # the checker would report the same again
        return
    yield from find_misplaced_weights(model, context.spec.options.get("external_data"))
    try:
        # With the path, a model over protobuf's 2 GB passes too. Includes strict inference.
        onnx.checker.check_model(str(context.path), full_check=True)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        ValueError,
        RuntimeError,
    ) as error:
        message = str(error).replace(f"{context.path.parent}/", "")
        yield truncate(join_lines(message), _MAX_LENGTH)
