"""The process of one pass: it calls a function of the project and reports its dependencies."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from exporter.checks.protocol import read_inputs
from exporter.core.import_object import load_attribute
from exporter.manifest import FilePass, ModelSpec
from exporter.worker.process.observed_call import CallReport, observe_call


def run_pass(
    root: Path,
    spec: ModelSpec,
    file_pass: FilePass,
    source: Path,
    target: Path,
    samples: tuple[Path, ...],
) -> CallReport:
    """Call a pass of an entry, which reads the file `source` and writes `target`."""

    def call() -> None:
        function = load_attribute(file_pass.call, (root / spec.manifest).parent)
        if not callable(function):
            kind = type(function).__name__
            raise TypeError(f"{file_pass.call} is a {kind}, expected a function")
        arguments: dict[str, Any] = dict(file_pass.arguments)
        if "samples" in inspect.signature(function).parameters:
            tables = [read_inputs(path, spec) for path in samples]
            arguments["samples"] = [{n: a.copy() for n, a in table.items()} for table in tables]
        function(source, target, **arguments)

    return observe_call(root, call)
