"""The line of the model behind a node: the innermost frame that is not torch's own.

Input: stack traces in the formats of torch.
Output: `models/vision.py:31`, `transformers/activations.py:69`, or "".
"""

from __future__ import annotations

import re
from pathlib import Path

from exporter.worker.dependencies.project_files import find_model_file

#: `File "/x/models.py", line 8, in forward`, outermost first: dynamo's metadata.
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
#: `/x/models.py(8): forward`, innermost first: TorchScript's source ranges.
_RANGE = re.compile(r"^(?P<file>[^\n(]+)\((?P<line>\d+)\)", re.MULTILINE)
#: `File "/x/models.py", line 8` of scripted code, and `/x/models.py:8:4` before it.
_SCRIPTED = re.compile(r"^(?P<file>[^\n:]+\.py):(?P<line>\d+)", re.MULTILINE)


def find_source_line(trace: str, root: Path) -> str:
    """Return the innermost line of the project or of a package with models.

    Returns:
        "" if all lines are those of torch, of other tools or of Python.
    """
    if frames := _FRAME.findall(trace):
        frames.reverse()
    else:
        frames = _RANGE.findall(trace) or _SCRIPTED.findall(trace)
    for file, line in frames:
        if path := find_model_file(file, root):
            return f"{path}:{line}"
    return ""
