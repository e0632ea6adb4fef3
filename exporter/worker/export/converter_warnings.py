"""What the version converter says while `torch.onnx.export` takes a file to another opset.

In: nothing. Out: its complaints as notes, with the operator that is in the way where it is named.

Dynamo writes opset 18 and has it converted from there, up by onnxscript's converter and down by
ONNX's. Where that fails, the file keeps opset 18, or a node keeps its old meaning, and only the log
says so.
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
    """Collects what the converter complains of while the context lasts, each complaint once."""
    listener = _Listener()
    logger = logging.getLogger(_LOGGER)
    logger.addHandler(listener)
    try:
        yield listener.notes
    finally:
        logger.removeHandler(listener)


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(level=logging.WARNING)
        self.notes: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            note = f"the version converter {_reason(str(error))}"
        elif skipped := _SKIPPED.search(record.getMessage()):
            operator, why = skipped.groups()
            note = f"the version converter left a node {operator} as it was: {why}"
        else:
            return
        if format_message(note) not in self.notes:
            self.notes.append(format_message(note))


def _reason(text: str) -> str:
    """Why a conversion failed, in our words where they can be."""
    if found := _NO_ADAPTER.search(text):
        return f"cannot take {found[3]} down {found[1].lower()} opset {found[2]}"
    if found := _NO_OLDER.search(text):
        return f"cannot take {found[1]} down: lower opsets have no such operator"
    if found := _ASSERTION.match(text):
        # The adapter is named for what it does, such as `axes_input_to_attribute`.
        return f"fails in {found[1]}: {found[2]}"
    return f"fails: {text}"
