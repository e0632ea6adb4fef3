"""All places at which a model cannot be captured, by a draft export."""

from __future__ import annotations

import re
from contextlib import suppress

import torch

from exporter.worker.diagnose.time_limit import TimeLimitExceeded, limit_time
from exporter.worker.export.attempts import ExportContext
from exporter.worker.export.capture import capture_program, list_obstacles
from exporter.worker.process.failure import Failure
from exporter.worker.reference.model_snapshot import ModelSnapshot

#: Failures that a draft export passes, so that it reports the next ones too.
_PASSED = re.compile(
    r"data-dependent|Could not (guard|extract)|ConstraintViolation|Constraints violated"
    r"|[Ff]ake (impl|kernel)|meta kernel|GuardOnDataDependent"
)


def find_obstacles(text: str, context: ExportContext, seconds: float) -> tuple[str, ...]:
    """Return all places at which torch.export cannot capture the model.

    Args:
        text: The message of the failed capture and the end of its traceback.
        context: The model and its route.
        seconds: The time limit.

    Returns:
        Nothing if a draft export cannot pass such a failure, fails too, or takes too long.
    """
    is_module = isinstance(context.model, torch.nn.Module)
    if not is_module or context.route.exporter != "dynamo" or not _PASSED.search(text):
        return ()
    state = ModelSnapshot(context.model)
    try:
        with suppress(TimeLimitExceeded, Failure), limit_time(seconds):
            program = capture_program(
                context.model, context.spec, context.inputs, strict=False, draft=True
            )
            return list_obstacles(program, context.root)
    finally:
        state.restore()
    return ()
