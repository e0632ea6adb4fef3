"""What a runtime's exception says, as one line that is the same on every machine.

In: an exception and the path of the model. Out: its first line without folders and error codes.
"""

from __future__ import annotations

import re
from pathlib import Path

from exporter.core.sanitize import one_line, redact

_LENGTH = 400
#: `[ONNXRuntimeError] : 1 : FAIL : ` before what happened; the name of the code stays.
_CODE = re.compile(r"\[ONNXRuntimeError\] : \d+ : ")


def first_line(error: BaseException, path: Path) -> str:
    """The first line of `error`, or its class where it has no text."""
    text = str(error).replace(f"{path.parent}/", "")
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return redact(one_line(_CODE.sub("", lines[0])), limit=_LENGTH)
