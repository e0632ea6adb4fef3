"""What the TorchScript tracer says of values that it bakes into the graph.

In: nothing. Out: its warnings as notes, with the line of the model that each is about.

The tracer names the line at which Python was when it warned, which may be torch's own: the model's
line is the innermost one of the project on the stack.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from torch.jit._trace import TracerWarning

from exporter.records.record import TRACER_PREFIX
from exporter.worker.dependencies.project_files import find_project_path
from exporter.worker.process.failure import format_message


@contextmanager
def collect_tracer_warnings(root: Path) -> Iterator[list[str]]:
    """Collects the tracer's warnings while the context lasts, each once with its count.

    Args:
        root: The project's root, to which files are relative; the worker runs there.

    Yields:
        The notes; complete when the context is left.
    """
    notes: list[str] = []
    counts: Counter[str] = Counter()

    def heard(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        # Everything stays in the cell's log, tracer warnings too.
        text = warnings.formatwarning(message, category, filename, lineno, line)
        (file or sys.stderr).write(text)
        if issubclass(category, TracerWarning):
            first = str(message).strip().splitlines()[0]
            where = _models_line(root) or f"{Path(filename).name}:{lineno}"
            counts[format_message(f"{TRACER_PREFIX}{where}: {first}")] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.simplefilter("always", TracerWarning)
        warnings.showwarning = heard
        try:
            yield notes
        finally:
            notes += [f"{note} ({n} times)" if n > 1 else note for note, n in counts.items()]


def _models_line(root: Path) -> str:
    """The innermost line of the project that is running."""
    for frame in reversed(traceback.extract_stack()):
        if place := find_project_path(Path(frame.filename), root):
            return f"{place}:{frame.lineno}"
    return ""
