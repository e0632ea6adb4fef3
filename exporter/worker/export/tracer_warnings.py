"""Warnings of the TorchScript tracer about values that become constants of the graph."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from exporter.records.record import TRACER_PREFIX
from exporter.worker.dependencies.path_groups import find_model_file
from exporter.worker.process.failure import format_message
from exporter.worker.torch_private.tensor_internals import TracerWarning


@contextmanager
def collect_tracer_warnings(root: Path) -> Iterator[list[str]]:
    """Collect the tracer's warnings while the context is active, each once with its count.

    Args:
        root: The project's root, which is the working folder of the worker.

    Yields:
        The notes; complete at the end of the context.
    """
    notes: list[str] = []
    counts: Counter[str] = Counter()

    def record_warning(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        # The cell's log contains all warnings, including those of the tracer.
        text = warnings.formatwarning(message, category, filename, lineno, line)
        (file or sys.stderr).write(text)
        if issubclass(category, TracerWarning):
            first = str(message).strip().splitlines()[0]
            frames = (
                (find_model_file(frame.filename, root), frame.lineno)
                for frame in reversed(traceback.extract_stack())
            )
            lines = (f"{path}:{number}" for path, number in frames if path)
            source = next(lines, f"{Path(filename).name}:{lineno}")
            counts[format_message(f"{TRACER_PREFIX}{source}: {first}")] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.simplefilter("always", TracerWarning)
        warnings.showwarning = record_warning
        try:
            yield notes
        finally:
            notes += [f"{note} ({n} times)" if n > 1 else note for note, n in counts.items()]
