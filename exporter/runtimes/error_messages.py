"""The message of a runtime's exception as one line that is equal on every machine.

Input: an exception and the path of the model. Output: its first line without folders and error
codes.
"""

from __future__ import annotations

import re
from pathlib import Path

from exporter.core.sanitize import join_lines, redact

#: Characters of a message.
_MAX_LENGTH = 400
#: The number of an error code; the name of the code remains.
_CODE = re.compile(r"\[ONNXRuntimeError\] : \d+ : ")


def format_error(error: BaseException, path: Path) -> str:
    """Return the first line of the exception, or its class if it has no text."""
    text = str(error).replace(f"{path.parent}/", "")
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return redact(join_lines(_CODE.sub("", lines[0])), limit=_MAX_LENGTH)
