"""The operators of one run: the one that fails, and the model's line of each result."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporter.worker.dependencies.path_groups import find_model_file
from exporter.worker.reference.dispatch_modes import create_mode
from exporter.worker.torch_private import pytree


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """The arguments of one call of an operator."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(slots=True)
class OperatorLog:
    """The operators of one run."""

    failing: OperatorCall | None = None
    """The call that raised the exception, if an operator did."""
    lines: dict[int, str] = field(default_factory=dict)
    """The model's line by the identity of a result. A new result replaces a freed one."""


@contextmanager
def log_operators() -> Iterator[OperatorLog]:
    """Record the operators inside."""
    log = OperatorLog()

    def record(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        log.failing = OperatorCall(args, kwargs)
        returned = func(*args, **kwargs)
        log.failing = None
        line = _find_current_line()
        for leaf in pytree.tree_leaves(returned):
            log.lines[id(leaf)] = line
        return returned

    with create_mode(record):
        yield log


def _find_current_line() -> str:
    """Return the innermost line of the model on the stack, or "" if there is none."""
    for frame, line in traceback.walk_stack(None):
        # The working folder of a worker is the root of the project.
        if path := find_model_file(frame.f_code.co_filename, Path()):
            return f"{path}:{line}"
    return ""
