"""Warnings of the tracer and errors of the version converter during an export, as notes."""

from __future__ import annotations

import logging
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from exporter.records.record import TRACER_PREFIX
from exporter.worker.dependencies.source_files import find_frame_line
from exporter.worker.process.failure import format_message
from exporter.worker.torch_private.internals import TracerWarning


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
            source = find_frame_line(traceback.walk_stack(None), root)
            source = source or f"{Path(filename).name}:{lineno}"
            counts[format_message(f"{TRACER_PREFIX}{source}: {first}")] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.simplefilter("always", TracerWarning)
        warnings.showwarning = record_warning
        try:
            yield notes
        finally:
            notes += [f"{note} ({n} times)" if n > 1 else note for note, n in counts.items()]


_LOGGER = "onnxscript.version_converter"
#: `.../BaseConverter.h:66: adapter_lookup: Assertion `false` failed: No Adapter ...`
_ASSERTION = re.compile(r"^\S*?(\w+)\.h:\d+: .*?Assertion .*? failed: (.*)", re.DOTALL)
_NO_ADAPTER = re.compile(r"No Adapter (From|To) Version \$?(\d+) for (\S+)")
_NO_OLDER = re.compile(r"No Previous Version of (\S+) exists")
_SKIPPED = re.compile(
    r"Skipping version conversion for node (\S+) due to exception: (.*)", re.DOTALL
)


@contextmanager
def collect_converter_warnings() -> Iterator[list[str]]:
    """Collect the errors of the converter while the context is active, each once.

    dynamo writes opset 18. If the conversion to another opset fails, the file remains at 18 or a
    node keeps its old meaning, and only the log has a message.
    """
    handler = _NoteHandler()
    logger = logging.getLogger(_LOGGER)
    logger.addHandler(handler)
    try:
        yield handler.notes
    finally:
        logger.removeHandler(handler)


class _NoteHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__(level=logging.WARNING)
        self.notes: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            note = f"the version converter {_translate(str(error))}"
        elif match := _SKIPPED.search(record.getMessage()):
            operator, reason = match.groups()
            note = f"the version converter did not convert a node {operator}: {reason}"
        else:
            return
        if format_message(note) not in self.notes:
            self.notes.append(format_message(note))


def _translate(text: str) -> str:
    """Return the reason of a failed conversion in clear words, if the text is known."""
    if match := _NO_ADAPTER.search(text):
        return f"cannot lower {match[3]} {match[1].lower()} opset {match[2]}"
    if match := _NO_OLDER.search(text):
        return f"cannot lower {match[1]}: lower opsets have no such operator"
    if match := _ASSERTION.match(text):
        # The name of the adapter describes its work, such as `axes_input_to_attribute`.
        return f"fails in {match[1]}: {match[2]}"
    return f"fails: {text}"
