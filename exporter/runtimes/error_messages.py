"""The message of a runtime as one line that is equal on every machine."""

from __future__ import annotations

import re
from pathlib import Path

from exporter.core.text import join_lines, redact

#: Characters of a message.
_MAX_LENGTH = 400
#: The number of an error code; the name of the code remains.
_CODE = re.compile(r"\[ONNXRuntimeError\] : \d+ : ")


def format_runtime_message(text: str, path: Path) -> str:
    """Return the first line of a message."""
    lines = [line for line in text.replace(f"{path.parent}/", "").splitlines() if line.strip()]
    return redact(join_lines(_CODE.sub("", lines[0])), limit=_MAX_LENGTH) if lines else ""
