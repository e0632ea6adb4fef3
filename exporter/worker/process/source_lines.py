"""The line of the model behind a node: the innermost frame that is not torch's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

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


def find_node_line(node: Any, root: Path) -> str:
    """Return the line of the model behind a node of any graph, or "" if the node has none."""
    from exporter.worker.torch_private.export_speedups import STACK_TRACE_KEY  # loads torch

    if hasattr(node, "metadata_props"):  # of a file; TorchScript writes it as documentation
        trace = node.metadata_props.get(STACK_TRACE_KEY) or node.doc_string or ""
    elif hasattr(node, "meta"):  # of a captured program
        trace = node.meta.get("stack_trace") or ""
    else:  # of a traced graph
        trace = str(node.sourceRange())
    return find_source_line(trace, root)
