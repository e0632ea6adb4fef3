"""The process of one pass: it calls a function of the project and reports its dependencies.

It imports neither torch nor a runtime, unless the function does.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporter.checks.protocol import read_sample
from exporter.core.import_object import load_attribute, search_project
from exporter.manifest import FilePass, ModelSpec
from exporter.worker.dependencies.opened_files import FileAccesses, OpenedFiles, watch_variables
from exporter.worker.dependencies.packages import list_loaded_packages, watch_searches
from exporter.worker.process.failure import format_traceback_tail


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """The end of a pass, and all that it depends on."""

    accesses: FileAccesses
    packages: dict[str, str]
    variables: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    detail: str = ""
    is_out_of_memory: bool = False


def run_pass(
    root: Path,
    spec: ModelSpec,
    file_pass: FilePass,
    source: Path,
    target: Path,
    samples: tuple[Path, ...],
) -> PassReport:
    """Call a pass of an entry, which reads the file `source` and writes `target`."""
    opened = OpenedFiles()
    reads = watch_variables()
    problem = ""
    detail = ""
    is_out_of_memory = False
    watch_searches(root)
    with opened.watch():
        try:
            search_project(root)
            function = load_attribute(file_pass.call, (root / spec.manifest).parent)
            if not callable(function):
                raise TypeError(
                    f"{file_pass.call} is a {type(function).__name__}, expected a function"
                )
            arguments: dict[str, Any] = dict(file_pass.arguments)
            if "samples" in inspect.signature(function).parameters:
                tables = [read_sample(path, spec).inputs for path in samples]
                arguments["samples"] = [{n: a.copy() for n, a in table.items()} for table in tables]
            function(source, target, **arguments)
        except MemoryError:
            problem, is_out_of_memory = "MemoryError", True
        except BaseException as error:
            detail = format_traceback_tail(error)
            text = str(error).strip().partition("\n")[0]
            problem = f"raises {type(error).__name__}{f': {text}' if text else ''}"
    accesses = opened.list_accesses()
    return PassReport(
        accesses=accesses,
        packages=list_loaded_packages(root),
        variables=reads.read_states(accesses.read, root.resolve()),
        problem=problem,
        detail=detail,
        is_out_of_memory=is_out_of_memory,
    )
