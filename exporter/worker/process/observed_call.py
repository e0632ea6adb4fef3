"""A call of a function of the project in a process of its own, and all that the call depends on.

It imports neither torch nor a runtime, unless the function does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from exporter.core.import_object import search_project
from exporter.worker.dependencies.opened_files import FileAccesses, OpenedFiles, watch_variables
from exporter.worker.dependencies.packages import list_loaded_packages, watch_searches
from exporter.worker.process.failure import format_traceback_tail


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReport:
    """The end of a call, and all that it depends on."""

    accesses: FileAccesses
    packages: dict[str, str]
    variables: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    """How it failed: `raises ValueError: ...`; "" if it did not."""
    detail: str = ""
    is_out_of_memory: bool = False


def observe_call(root: Path, call: Callable[[], object]) -> CallReport:
    """Call a function that loads and runs code of the project, and report its dependencies."""
    opened = OpenedFiles()
    reads = watch_variables()
    problem = ""
    detail = ""
    is_out_of_memory = False
    watch_searches(root)
    with opened.watch():
        try:
            search_project(root)
            call()
        except MemoryError:
            problem, is_out_of_memory = "MemoryError", True
        except BaseException as error:
            detail = format_traceback_tail(error)
            text = str(error).strip().partition("\n")[0]
            problem = f"raises {type(error).__name__}{f': {text}' if text else ''}"
    accesses = opened.list_accesses()
    return CallReport(
        accesses=accesses,
        packages=list_loaded_packages(root, accesses.read),
        variables=reads.read_states(accesses.read, root.resolve()),
        problem=problem,
        detail=detail,
        is_out_of_memory=is_out_of_memory,
    )
