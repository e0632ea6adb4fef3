"""Errors of the version converter during `torch.onnx.export`.

Dynamo writes opset 18. onnxscript's converter raises the opset from there, and ONNX's converter
lowers it. If a conversion fails, the file remains at opset 18 or a node keeps its old meaning. Only
the log has a message about it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from exporter.worker.process.failure import format_message

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
    """Collect the errors of the converter while the context is active, each once."""
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
